"""Hard negatives over the whole training set, exactly.

Every image against every caption; each query keeps its `depth` most similar candidates, its own
left out, and those that a filter refuses.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.base import Rows
from simgrad.data.candidates import Candidates, Lists, Similarities
from simgrad.evaluation.evaluator import embedding_scores, own_pairing, unit_vectors
from simgrad.evaluation.scores import Scores
from simgrad.mining.filters import Filters
from simgrad.mining.product import Cut, LargestScores, Own, both_ways, joined, largest
from simgrad.mining.statistics import survey, weakest

Mask = npt.NDArray[np.bool_]


def mine(
    images: Any,
    texts: Any,
    image_of_caption: Any = None,
    depth: int = 300,
    *,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    min_score: float | None = None,
    max_score: float | None = None,
    range_min: int = 0,
    range_max: int | None = None,
    scores: bool = False,
    half: bool | None = None,
) -> Candidates:
    """The `depth` hardest negatives of every image and caption.

    Args:
        images: (images, d) embeddings, torch or numpy, normalised inside.
        texts: (captions, d) embeddings.
        image_of_caption: (captions,) each caption's image, or -1: a text that is nobody's, which
            may be a negative of every image. Or a boolean mask (images, captions): a caption may
            belong to several images. Own pairs are never candidates. If left out, image i and
            caption i belong together.
        depth: how many to keep for each query.
        absolute_margin: a negative is less similar than the query's own pair (its weakest, where
            it has several) by at least this.
        relative_margin: the same as a share of that similarity, e.g. 0.05.
        min_score: a negative is at least so similar.
        max_score: a negative is at most so similar.
        range_min: skip the N hardest negatives that pass the filters.
        range_max: consider only the N hardest candidates, before any filter.
        scores: also keep how similar each candidate is.
        half: products in half precision with float32 re-scoring; default: on a GPU.

    Examples:
        >>> images = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> candidates = simgrad.mine(images, images, image_of_caption=[0, 1, 2], depth=1)
        >>> candidates.i2t.tolist()  # the hardest caption of each image
        [[1], [0], [1]]
    """
    x, y = (e.float() for e in unit_vectors(images, texts))
    given = own_pairing(image_of_caption, len(x), len(y))
    pairs = _checked_pairs(given, len(x), len(y), x.device)
    filters = Filters(absolute_margin, relative_margin, min_score, max_score, range_min, range_max)
    half = x.is_cuda if half is None else half
    own = (x[pairs.image] * y[pairs.caption]).sum(1)  # (pairs,)
    found = _mine_vectors(x, y, pairs, own, _checked_depth(depth, filters), filters, half, scores)
    return candidates_of(found, {"depth": depth, **filters.told(), "half": half})


def mine_scores(
    scores: Scores,
    image_of_caption: Rows,
    depth: int,
    filters: Filters | None = None,
    *,
    rescore: Scores | None = None,
) -> Candidates:
    """The same from any similarities, block by block, with scores and their statistics.

    Vectors are normalised, as in `mine`.

    `rescore`: other similarities, e.g. the mean of several models. The first `range_max` candidates
    (by default `range_min` plus twice the depth) are found by `scores`; these say which are kept.
    """
    filters = filters or Filters()
    scores, rescore = _cosine(scores), None if rescore is None else _cosine(rescore)
    judge = rescore or scores
    if (judge.num_images, judge.num_captions) != (scores.num_images, scores.num_captions):
        raise InputError(
            f"similarities of {judge.num_images:,} images and {judge.num_captions:,} captions "
            f"cannot rescore those of {scores.num_images:,} and {scores.num_captions:,}."
        )
    owner = _checked_owner(image_of_caption, scores.num_images, scores.num_captions)
    _checked_depth(depth, filters)
    own = own_scores(judge, owner)
    vectors = scores.vectors() if rescore is None else None
    if vectors is not None:
        x, y = (e.float() for e in vectors)
        place = x.device
        pairs = Own.of_captions(owner.to(place))
        sides = _mine_vectors(x, y, pairs, own.to(place), depth, filters, x.is_cuda, scores=True)
    else:
        sides = _mine_blocks(scores, rescore, owner, own, depth, filters)
    told = survey(judge, owner, own, sides, depth, filters)
    asked = {"depth": depth, **filters.told(), "rescored": rescore is not None}
    return candidates_of(sides, {**asked, "statistics": told})


def _cosine(scores: Scores) -> Scores:
    vectors = scores.vectors()
    return scores if vectors is None else embedding_scores(*vectors, normalise=True)


def candidates_of(sides: tuple[LargestScores, LargestScores], info: dict[str, Any]) -> Candidates:
    """Both lists as they are kept."""
    (i2t, i2t_scores), (t2i, t2i_scores) = sides
    return Candidates(i2t, t2i, info, i2t_scores=i2t_scores, t2i_scores=t2i_scores)


def own_scores(scores: Scores, owner: Tensor) -> Tensor:
    """(captions,) the similarity of every caption with its image."""
    own = torch.empty(scores.num_captions)
    for start, stop, block in scores.blocks():
        here = ((owner >= start) & (owner < stop)).nonzero()[:, 0]
        own[here] = block[owner[here].to(block.device) - start, here.to(block.device)].float().cpu()
    return own


def _mine_vectors(
    x: Tensor,
    y: Tensor,
    pairs: Own,
    own: Tensor,
    depth: int,
    filters: Filters,
    half: bool,
    scores: bool,
) -> tuple[LargestScores, LargestScores]:
    bounds = (weakest(own, pairs.image, len(x)), weakest(own, pairs.caption, len(y)))
    if filters.range_max is None:
        cut = Cut(depth, filters.range_min, filters.min_score, half, scores)
        ceilings = (filters.ceiling(bounds[0]), filters.ceiling(bounds[1]))
        return both_ways(x, y, pairs, ceilings, cut)
    whole = Cut(filters.range_max, half=half, scores=True)
    sides = both_ways(x, y, pairs, (None, None), whole)
    i2t, t2i = (_filtered(*pair, depth, filters) for pair in zip(sides, bounds, strict=True))
    return i2t, t2i


def _filtered(found: LargestScores, own: Tensor, depth: int, filters: Filters) -> LargestScores:
    assert found.scores is not None
    scores, rows = (torch.from_numpy(part) for part in (found.scores, found.rows))
    return Cut(depth, scores=True).lists(*filters.applied(scores, rows, own.cpu()), rows.shape[1])


def _mine_blocks(
    scores: Scores,
    rescore: Scores | None,
    owner: Tensor,
    own: Tensor,
    depth: int,
    filters: Filters,
) -> tuple[LargestScores, LargestScores]:
    """Similarities that are no product of vectors, or are judged by others."""
    bounds = (weakest(own, owner, scores.num_images), own)
    ways = (False, True)
    i2t, t2i = (
        _mine_way(scores, rescore, owner, bound, depth, filters, flipped)
        for bound, flipped in zip(bounds, ways, strict=True)
    )
    return i2t, t2i


def _mine_way(
    scores: Scores,
    rescore: Scores | None,
    owner: Tensor,
    own: Tensor,
    depth: int,
    filters: Filters,
    flipped: bool,
) -> LargestScores:
    if flipped:
        scores, rescore = scores.transposed(), rescore and rescore.transposed()
    count = scores.num_captions  # candidates
    within = filters.range_max
    if rescore is not None and within is None:
        within = filters.range_min + 2 * depth
    again = rescore.blocks(scores.block_rows()) if rescore is not None else None
    parts = []
    for start, stop, block in scores.blocks(scores.block_rows()):
        block = block.float()
        query = torch.arange(start, stop, device=block.device)
        place = owner.to(block.device)
        mine = (query, place[start:stop]) if flipped else _pairs_of(place, start, stop)
        block[mine[0] - start, mine[1]] = -torch.inf
        bound = own[start:stop].to(block.device)
        if within is None:  # as deep as it takes
            refused = filters.ceiling(bound)
            if refused is not None:
                block.masked_fill_(block > refused[:, None], -torch.inf)
        keep = min(within or depth + filters.range_min, count)
        values, where = largest(block, keep)
        if again is not None:
            other = next(again)[2].float().to(block.device)
            values = other.gather(1, where).masked_fill(values == -torch.inf, -torch.inf)
        parts.append(Cut(depth, scores=True).lists(*filters.applied(values, where, bound), count))
    return joined(parts)


def _pairs_of(owner: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Images and captions of the own pairs of some images."""
    captions = ((owner >= start) & (owner < stop)).nonzero()[:, 0]
    return owner[captions], captions


def _checked_owner(image_of_caption: Any, images: int, captions: int, device: Any = None) -> Tensor:
    owner = torch.as_tensor(image_of_caption, device=device).long()
    low, high = (int(end) for end in owner.aminmax()) if owner.numel() else (-1, -1)
    if owner.shape != (captions,) or low < 0 or high >= images:
        raise InputError("image_of_caption must give one image row for every caption.")
    return owner


def _checked_pairs(given: Any, images: int, captions: int, device: torch.device) -> Own:
    """Which pairs are own ones: from each caption's image, or from a mask."""
    told = torch.as_tensor(given, device=device)
    if told.dtype == torch.bool:
        if told.shape != (images, captions):
            raise InputError(
                f"the mask of own pairs has shape {tuple(told.shape)}; {(images, captions)} is "
                "needed."
            )
        caption, image = told.T.nonzero(as_tuple=True)
        return Own(image, caption)
    if told.shape != (captions,) or told.is_floating_point() or told.is_complex():
        raise InputError(
            f"image_of_caption is one whole number for each of the {captions:,} captions (-1: "
            f"nobody's), or a mask of images x captions, not {told.dtype} of shape "
            f"{tuple(told.shape)}."
        )
    wrong = ((told < -1) | (told >= images)).nonzero()[:, 0]
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"image_of_caption[{row}] is {int(told[row])}, but images are numbered 0 to "
            f"{images - 1}; -1 is a text that is nobody's."
        )
    return Own.of_captions(told.long())


def _checked_depth(depth: int, filters: Filters) -> int:
    if isinstance(depth, bool) or not isinstance(depth, (int, np.integer)):
        raise InputError(f"depth is {depth!r:.40}; it must be a whole number.")
    if depth < 1:
        raise InputError("depth must be at least 1.")
    if filters.range_max is not None and depth > filters.range_max - filters.range_min:
        warnings.warn(
            f"depth is {depth}, but the window of ranks ({filters.range_min} to "
            f"{filters.range_max}) has {filters.range_max - filters.range_min}: lists are as short "
            "as that. Raise range_max, or lower depth.",
            stacklevel=3,
        )
    return int(depth)


def which_are_true(lists: Lists, truth: Callable[[Rows, Rows], Mask]) -> Mask:
    """Which candidates are true of their query after all."""
    rows = np.maximum(lists, 0).astype(np.int64)
    found = np.stack([truth(np.array([query]), rows[query]) for query in range(len(lists))])
    return found & (lists >= 0)


def without(found: Candidates, i2t: Mask, t2i: Mask) -> Candidates:
    """Candidates with some entries taken out, the rest moved up, -1 at the end."""
    first, first_scores = _without(found.i2t, found.i2t_scores, i2t)
    second, second_scores = _without(found.t2i, found.t2i_scores, t2i)
    return replace(found, i2t=first, t2i=second, i2t_scores=first_scores, t2i_scores=second_scores)


def _without(
    lists: Lists, scores: Similarities | None, drop: Mask
) -> tuple[Lists, Similarities | None]:
    dropped = drop | (lists < 0)
    order = np.argsort(dropped, axis=1, kind="stable")
    gone = np.take_along_axis(dropped, order, 1)
    kept = np.where(gone, -1, np.take_along_axis(lists, order, 1)).astype(np.int32)
    if scores is None:
        return kept, None
    left = np.where(gone, -np.inf, np.take_along_axis(scores, order, 1)).astype(np.float32)
    return kept, left
