"""Similarities from arrays, in files or in memory: embeddings of both kinds, or a whole matrix."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.data.array_files import IMAGES, ONLY, TEXTS, pick, read_arrays
from simgrad.data.base import Split
from simgrad.evaluation.evaluator import check_pairing, embedding_scores, in_order
from simgrad.evaluation.ranks import Integers
from simgrad.evaluation.scores import Matrix, Scores, as_floats
from simgrad.retriever.similarities import Similarities, naming

_ALONE = ("embedding", "embeddings")  # in a file of images or captions alone
_SIMILARITIES = ("similarities", "scores")
_PAIRING = ("image_of_caption",)
Ids = tuple[str, ...] | None


def read_similarities(
    target: Any,
    *,
    image_of_caption: Any = None,
    captions_per_image: int | None = None,
    normalise: bool = False,
    device: str = "auto",
) -> Similarities:
    """From one file with `images` and `texts` or with `similarities`; or from arrays by name."""
    where, arrays = _given(target, "arrays")
    file = str(target) if isinstance(target, str | Path) else ""
    owner = _owner(arrays, image_of_caption)
    images, texts = (_named(arrays, names) for names in (IMAGES, TEXTS))
    scores: Scores
    if images is not None and texts is not None:
        with naming(where):
            scores = embedding_scores(
                images, texts, normalise=normalise, device=_place(device), file=file
            )
    elif images is not None or texts is not None:
        has = ", ".join(arrays)
        raise InputError(f"{where}: needs the arrays 'images' and 'texts' (it has: {has}).")
    else:
        matrix = as_floats(pick(arrays, _SIMILARITIES, where, 2), str(where))
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise InputError(
                f"{where}: similarities are (images, captions), not {tuple(matrix.shape)}."
            )
        scores = Matrix(matrix)
    asked = _said(image_of_caption, where)
    pairing = _pairing(owner, captions_per_image, scores, asked)
    ids = (_ids(arrays, "image_ids"), _ids(arrays, "caption_ids"))
    return _similarities(file or str(where), scores, pairing, *ids)


def read_pair(
    images: Any,
    texts: Any,
    *,
    image_of_caption: Any = None,
    captions_per_image: int | None = None,
    normalise: bool = False,
    device: str = "auto",
) -> Similarities:
    """Embeddings of images and of captions, each in a file or an array of its own.

    Which caption belongs to which image is said by `image_of_caption`, by an array or column of
    that name beside the captions, or by ids: a column `image_id` there and `id` or `image_id`
    beside the images.
    """
    (first, left), (second, right) = _given(images, "images"), _given(texts, "texts")
    arrays = pick(left, IMAGES + _ALONE, first, 2), pick(right, TEXTS + _ALONE, second, 2)
    in_files = all(isinstance(x, str | Path) for x in (images, texts))
    name = f"{images} + {texts}" if in_files else "arrays"
    with naming(name):
        scores = embedding_scores(
            *arrays, normalise=normalise, device=_place(device), file=name if in_files else ""
        )
    image_ids = _ids(left, "image_id") or _ids(left, "id") or _ids(left, "image_ids")
    owner = _owner(right, image_of_caption)
    if owner is None and image_ids is not None and "image_id" in right:
        owner = _by_id(image_ids, right["image_id"], second)
    pairing = _pairing(owner, captions_per_image, scores, _said(image_of_caption, second))
    caption_ids = _ids(right, "caption_id") or _ids(right, "id") or _ids(right, "caption_ids")
    return _similarities(name, scores, pairing, image_ids, caption_ids)


def are_numbers(names: Sequence[str]) -> bool:
    """Whether rows are called by their numbers, because nothing else was known of them."""
    return list(names) == [str(row) for row in range(len(names))]


def _similarities(
    name: str, scores: Scores, pairing: Integers, images: Ids, captions: Ids
) -> Similarities:
    """With a split that holds all that is known: ids, or the numbers of rows."""
    image_names = list(images or map(str, range(scores.num_images)))
    for what, ids, number in (
        ("image_ids", images, scores.num_images),
        ("caption_ids", captions, scores.num_captions),
    ):
        if ids is not None and len(ids) != number:
            raise InputError(f"{name}: {what} has {len(ids):,} entries for {number:,} rows.")
    texts = list(captions or map(str, range(scores.num_captions)))
    return Similarities(
        name, scores, Split(name, "", texts, pairing, image_names, caption_ids=captions)
    )


def _given(given: Any, what: str) -> tuple[Path, Mapping[str, Any]]:
    """Where arrays come from, for messages, and the arrays by name."""
    if isinstance(given, str | Path):
        path = Path(given).expanduser()
        return path, read_arrays(path)
    if isinstance(given, Mapping):
        return Path(what), given
    return Path(what), {ONLY: given if isinstance(given, torch.Tensor) else np.asarray(given)}


def _said(image_of_caption: Any, where: Path) -> str | Path:
    """What an error about the pairing names."""
    return image_of_caption if isinstance(image_of_caption, str | Path) else where


def _place(device: str) -> str | None:
    """Where to multiply; None: where the arrays are."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else None
    return str(pick_device(device))


def _owner(arrays: Mapping[str, Any], given: Any) -> Any:
    """The image of each caption, from a file of its own or beside the captions."""
    if isinstance(given, str | Path):
        path = Path(given).expanduser()
        return pick(read_arrays(path), _PAIRING, path, 1)
    return _named(arrays, _PAIRING) if given is None else given


def _named(arrays: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((arrays[name] for name in names if name in arrays), None)


def _by_id(images: tuple[str, ...], owners: Any, path: Path) -> Integers:
    rows = {name: row for row, name in enumerate(images)}
    if len(rows) < len(images):
        raise InputError(
            f"{path}: two images have the same id, so their captions cannot be distinguished."
        )
    wanted = [str(name) for name in owners.tolist()]
    missing = next((i for i, name in enumerate(wanted) if name not in rows), None)
    if missing is not None:
        raise InputError(f"{path}, row {missing}: there is no image '{wanted[missing][:80]}'.")
    return np.array([rows[name] for name in wanted], dtype=np.int64)


def _ids(arrays: Mapping[str, Any], name: str) -> Ids:
    return tuple(str(i) for i in arrays[name].tolist()) if name in arrays else None


def _pairing(
    owner: Any, captions_per_image: int | None, scores: Scores, where: str | Path
) -> Integers:
    images, captions = scores.num_images, scores.num_captions
    if captions_per_image is None and owner is not None:
        with naming(where):
            return check_pairing(owner, images, captions)
    if captions_per_image is None and images == captions:
        captions_per_image = 1
    if captions_per_image is None:
        raise InputError(
            f"{where}: which image does a caption belong to? Give `captions_per_image` "
            f"({captions / images:g} here, if it is the same for all and an image's captions stand "
            "together), or `image_of_caption`, or an array 'image_of_caption' in the file."
        )
    with naming(where):
        return in_order(captions_per_image, images, captions)
