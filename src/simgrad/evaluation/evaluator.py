"""Evaluate embeddings, a similarity matrix, or blocks of similarities made on demand."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from simgrad.core.devices import widened
from simgrad.core.errors import InputError, NotFinite
from simgrad.evaluation.metrics import Metrics, metrics_of
from simgrad.evaluation.protocols import Fold, Protocol, find_protocol
from simgrad.evaluation.ranks import Integers, Ranks, join_folds, ranks_from_rivals
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.rivals import count_rivals
from simgrad.evaluation.scores import Blocks, Embeddings, Matrix, Scores, SimilarityBlock, as_floats


def evaluate(
    images: Any,
    texts: Any,
    image_of_caption: Any = None,
    *,
    captions_per_image: int | None = None,
    protocol: str | Protocol = "all",
    recalls: Iterable[int] = HEADLINE_RECALLS,
    normalise: bool = False,
    device: str | torch.device | None = None,
    image_ids: Sequence[str] | None = None,
    caption_ids: Sequence[str] | None = None,
) -> Metrics:
    """Metrics of image embeddings (n, d) and caption embeddings (m, d), torch or numpy.

    The similarity is the dot product; `normalise=True` scales every vector to length 1 first.
    `image_of_caption[j]` is the row of caption j's image; any number of captions per image. Left
    out, caption j belongs to image j; or, with `captions_per_image=5`, captions 0 to 4 to image 0,
    and so on.
    Half precision is computed in float32, float64 stays. `device` moves the work, for example
    to "cuda".

    Examples:
        >>> images, texts = torch.eye(3), torch.eye(3).repeat_interleave(2, 0)
        >>> metrics = simgrad.evaluate(images, texts, [0, 0, 1, 1, 2, 2])  # two captions each
        >>> metrics.i2t_r1, metrics.rsum
        (100.0, 600.0)
    """
    scores = embedding_scores(images, texts, normalise=normalise, device=device)
    return evaluate_scores(
        scores,
        image_of_caption,
        captions_per_image=captions_per_image,
        protocol=protocol,
        recalls=recalls,
        image_ids=image_ids,
        caption_ids=caption_ids,
    )


def evaluate_similarities(
    similarities: Any,
    image_of_caption: Any = None,
    *,
    captions_per_image: int | None = None,
    protocol: str | Protocol = "all",
    recalls: Iterable[int] = HEADLINE_RECALLS,
    image_ids: Sequence[str] | None = None,
    caption_ids: Sequence[str] | None = None,
) -> Metrics:
    """Metrics of a similarity matrix (images, captions), torch or numpy, which is not changed.

    `image_of_caption`, `captions_per_image` as in `evaluate`: without them, the diagonal holds
    the true pairs.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> metrics = simgrad.evaluate_similarities(S, image_of_caption=[0, 1, 2])
        >>> round(metrics.i2t_r1, 1), metrics.i2t_r5
        (66.7, 100.0)
    """
    matrix = similarities if isinstance(similarities, Tensor) else np.asarray(similarities)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(
            f"similarities have the shape {tuple(matrix.shape)}; (images, captions) is needed."
        )
    if not isinstance(matrix, Tensor) and matrix.dtype != np.float16:
        matrix = as_floats(matrix, "similarities")
    elif not isinstance(matrix, Tensor):
        matrix = torch.from_numpy(np.ascontiguousarray(matrix))
    if matrix.is_meta:
        raise InputError("similarities lie on the device 'meta', which holds no numbers.")
    return evaluate_scores(
        Matrix(matrix.detach()),
        image_of_caption,
        captions_per_image=captions_per_image,
        protocol=protocol,
        recalls=recalls,
        image_ids=image_ids,
        caption_ids=caption_ids,
    )


def rank_blocks(
    similarity_block: SimilarityBlock,
    image_of_caption: Any,
    num_images: int | None = None,
    *,
    rows: int | None = None,
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> Metrics:
    """Metrics from a function `similarity_block(start, stop) -> (stop - start, captions)`.

    For models whose similarities are expensive or too many to hold. Where there are several
    blocks, the function is called for each twice: once for the scores of the true pairs, once to
    count against them. `rows` is the number of images per call.

    Examples:
        >>> images = torch.nn.functional.normalize(torch.randn(10, 4))
        >>> metrics = simgrad.evaluation.rank_blocks(
        ...     lambda start, stop: images[start:stop] @ images.T, torch.arange(10), rows=5
        ... )
        >>> metrics.i2t_r1
        100.0
    """
    pairing = np.asarray(torch.as_tensor(image_of_caption).cpu())
    count_images = num_images if num_images is not None else int(pairing.max(initial=-1)) + 1
    scores = Blocks(similarity_block, count_images, len(pairing))
    return evaluate_scores(scores, pairing, recalls=recalls, rows=rows)


def evaluate_scores(
    scores: Scores,
    image_of_caption: Any,
    *,
    captions_per_image: int | None = None,
    protocol: str | Protocol = "all",
    recalls: Iterable[int] = HEADLINE_RECALLS,
    image_ids: Sequence[str] | None = None,
    caption_ids: Sequence[str] | None = None,
    rows: int | None = None,
    rank: "RankFold | None" = None,
) -> Metrics:
    """What all of the above end in; `rank` ranks one fold, by default by counting."""
    given = image_of_caption
    if captions_per_image is None:
        given = own_pairing(given, scores.num_images, scores.num_captions)
    elif given is None:
        given = in_order(captions_per_image, scores.num_images, scores.num_captions)
    else:
        raise InputError("give image_of_caption or captions_per_image, not both.")
    pairing = check_pairing(given, scores.num_images, scores.num_captions)
    image_ids = _check_ids(image_ids, scores.num_images, "image_ids")
    caption_ids = _check_ids(caption_ids, scores.num_captions, "caption_ids")
    chosen = find_protocol(protocol)
    folds = chosen.fold(scores.num_images, pairing)
    ranks = []
    for fold in folds:
        part = scores
        whole = len(fold.images) == scores.num_images and len(fold.captions) == len(pairing)
        if not whole:
            part = scores.select(torch.from_numpy(fold.images), torch.from_numpy(fold.captions))
        found = (rank or partial(_count, rows=rows))(part, fold)
        # Named while a GPU still counts.
        ids = _names(image_ids, fold.images), _names(caption_ids, fold.captions)
        ranks.append(found(*ids))
    joined = ranks[0] if len(ranks) == 1 else join_folds(ranks)
    return metrics_of(joined, recalls, chosen.used(folds, len(pairing)))


Named = Callable[[Sequence[str], Sequence[str]], Ranks]  # ids of images and captions -> ranks
RankFold = Callable[[Scores, Fold], Named]


def _count(scores: Scores, fold: Fold, rows: int | None) -> Named:
    counts = count_rivals(scores, torch.from_numpy(fold.image_of_caption), rows)
    return partial(ranks_from_rivals, counts, fold.image_of_caption)


def embedding_scores(
    images: Any,
    texts: Any,
    *,
    normalise: bool = False,
    device: str | torch.device | None = None,
    quiet: bool = False,
    file: str = "",
) -> Embeddings:
    """Checked embeddings, ready to be multiplied; `quiet`: lengths may well differ."""
    left, right, lengths, ends = _read_vectors(images, texts, device)
    if normalise:
        return Embeddings(
            _of_length_1(left, lengths[0], ends[0]), _of_length_1(right, lengths[1], ends[1])
        )
    if not quiet and any(longest - shortest > 0.01 * longest for shortest, longest in ends):
        warnings.warn(
            f"{file and f'{file}: '}these vectors differ in length and are compared by dot "
            "product; `normalise=True` makes that cosine, as simgrad's objectives do.",
            stacklevel=3,
        )
    first, second = (x.clamp_min(torch.finfo(x.dtype).tiny) for x in lengths)
    return Embeddings(left, right, (first, second))


def unit_vectors(images: Any, texts: Any) -> tuple[Tensor, Tensor]:
    """Checked embeddings, each of length 1; where the images are."""
    left, right, lengths, ends = _read_vectors(images, texts, None)
    return _of_length_1(left, lengths[0], ends[0]), _of_length_1(right, lengths[1], ends[1])


def _of_length_1(vectors: Tensor, lengths: Tensor, ends: Sequence[float]) -> Tensor:
    """A vector of length 0 stays 0. Squares of tiny numbers are 0, so these are enlarged first."""
    limits = torch.finfo(vectors.dtype)
    unit = vectors / lengths.clamp_min(limits.tiny)[:, None]
    small = limits.tiny**0.4
    if ends[0] < small:
        rows = (lengths < small).nonzero()[:, 0]
        largest = vectors[rows].abs().amax(1, keepdim=True)
        some = vectors[rows] / torch.where(largest > 0, largest, 1)
        unit[rows] = some / torch.linalg.vector_norm(some, dim=1, keepdim=True).clamp_min(1)
    return unit


def _read_vectors(
    images: Any, texts: Any, device: str | torch.device | None
) -> tuple[Tensor, Tensor, list[Tensor], list[list[float]]]:
    """Images and texts of one type on one device, their lengths, and the least and largest."""
    left = as_floats(images, "images", device)
    right = as_floats(texts, "texts", device if device is not None else left.device)
    for name, vectors in (("images", left), ("texts", right)):
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise InputError(
                f"{name} have the shape {tuple(vectors.shape)}; (rows, dimension) is needed."
            )
    if left.shape[1] != right.shape[1]:
        raise InputError(
            f"images have {left.shape[1]} dimensions and texts {right.shape[1]}: "
            "they must share one space."
        )
    if left.dtype != right.dtype:
        left, right = widened(left), widened(right)
    lengths = [torch.linalg.vector_norm(vectors, dim=1) for vectors in (left, right)]
    # All that has to be known of them at once, so that a GPU is waited for once.
    ends = torch.stack([torch.stack(tuple(x.aminmax())) for x in lengths]).tolist()
    for i, name in enumerate(("images", "texts")):
        if not math.isfinite(ends[i][1]):
            _refuse((left, right)[i], lengths[i], name)
    return left, right, lengths, ends


def _refuse(vectors: Tensor, lengths: Tensor, name: str) -> NoReturn:
    bad = (~torch.isfinite(lengths)).nonzero()[:, 0]
    row = int(bad[0])
    kind = "NaN" if bool(torch.isnan(vectors[row]).any()) else "an infinite or huge value"
    more = f" ({len(bad):,} such rows)" if len(bad) > 1 else ""
    raise NotFinite(f"{name}, row {row}: the vector has {kind}{more}; it cannot be ranked.")


def in_order(captions_per_image: int, images: int, captions: int) -> Integers:
    """Each caption's image, where each image has so many and they stand in its order."""
    if captions_per_image < 1 or images * captions_per_image != captions:
        raise InputError(
            f"{images:,} images with {captions_per_image} captions each would be "
            f"{images * captions_per_image:,} captions, not {captions:,}."
        )
    return np.repeat(np.arange(images), captions_per_image)


def own_pairing(image_of_caption: Any, num_images: int, num_captions: int) -> Any:
    """What was given; left out, image i and caption i belong together."""
    if image_of_caption is not None:
        return image_of_caption
    if num_images != num_captions:
        raise InputError(
            f"{num_images} images and {num_captions} captions: say which belong "
            "together with image_of_caption, the row of each caption's image."
        )
    return np.arange(num_images)


def check_pairing(image_of_caption: Any, num_images: int, num_captions: int) -> Integers:
    """The image of each caption as int64, or an error that names the caption or image."""
    given = image_of_caption
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"image_of_caption is one whole number for each caption, not {array.dtype} of shape "
            f"{array.shape}."
        )
    if len(array) != num_captions:
        raise InputError(
            f"image_of_caption has {len(array):,} entries for {num_captions:,} captions."
        )
    pairing = array.astype(np.int64)
    outside = np.flatnonzero((pairing < 0) | (pairing >= num_images))
    if len(outside):
        j = int(outside[0])
        raise InputError(
            f"image_of_caption[{j}] is {array[j]}, but images are numbered 0 to {num_images - 1}."
        )
    lonely = np.flatnonzero(np.bincount(pairing, minlength=num_images) == 0)
    if len(lonely):
        more = f" (and {len(lonely) - 1:,} more)" if len(lonely) > 1 else ""
        raise InputError(
            f"image {lonely[0]}{more} has no caption: leave it out, or give it its captions "
            "in image_of_caption."
        )
    return pairing


def _check_ids(ids: Sequence[str] | None, number: int, name: str) -> list[str] | None:
    if ids is not None and len(ids) != number:
        raise InputError(f"{name} has {len(ids):,} entries for {number:,} rows.")
    return None if ids is None else list(ids)  # in their order, whatever a column looks up by


def _names(ids: list[str] | None, rows: Integers) -> list[str]:
    """Of some rows; without ids, their numbers."""
    return [str(row if ids is None else ids[row]) for row in rows.tolist()]
