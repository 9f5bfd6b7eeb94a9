"""Re-ranking: a slow scorer orders again what a fast one put first.

For each query the first k candidates of the fast ranking are scored again, and only they change
places among themselves. What stands below k stays there.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.evaluation.counting import count_rows
from simgrad.evaluation.evaluator import check_pairing
from simgrad.evaluation.metrics import HEADLINE_RECALLS, Floats, Metrics, metrics_of
from simgrad.evaluation.ranks import Booleans, Integers, Positions, Ranks, places
from simgrad.evaluation.scores import Scores

# (pairs, 2) of image row and caption row -> (pairs,) scores, higher = better
ScorePairs = Callable[[Tensor], Tensor]


def evaluate_reranked(
    scores: Scores,
    image_of_caption: Any,
    score_pairs: ScorePairs,
    k: int,
    *,
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> Metrics:
    """Metrics after the first k of every query, in both directions, were scored again."""
    if k < 1:
        raise InputError(f"re-ranking needs at least one candidate, not {k}.")
    pairing = check_pairing(image_of_caption, scores.num_images, scores.num_captions)
    captions = np.arange(len(pairing))
    caption_rank, i2t_tied = _rerank(scores, pairing, captions, score_pairs, k)
    t2i, t2i_tied = _rerank(
        scores.transposed(), captions, pairing, lambda pairs: score_pairs(pairs.flip(1)), k
    )
    ranks = Ranks(
        i2t=Positions.of(pairing, caption_rank).best,
        t2i=t2i,
        caption_rank=caption_rank,
        image_of_caption=pairing,
        image_ids=tuple(str(i) for i in range(scores.num_images)),
        caption_ids=tuple(str(i) for i in captions),
        fold=np.zeros(scores.num_images, dtype=np.int64),
        i2t_tied=i2t_tied,
        t2i_tied=t2i_tied,
    )
    used = f"all images and captions; the first {k} of every query scored again."
    return metrics_of(ranks, recalls, used)


@torch.no_grad()
def _rerank(
    scores: Scores, query: Integers, candidate: Integers, score_pairs: ScorePairs, k: int
) -> tuple[Integers, Booleans]:
    """Places of the true pairs, and which queries have a tie at their best pair."""
    own, rivals = count_rows(scores, torch.from_numpy(query), torch.from_numpy(candidate))
    place = places(query, own.cpu().numpy(), rivals.cpu().numpy())
    inside = np.flatnonzero(place <= k)  # ties at the edge of the first k count against us too
    again = _score(score_pairs, query[inside], candidate[inside])
    best = np.full(scores.num_images, np.inf)
    best[query[inside]] = -np.inf
    np.maximum.at(best, query[inside], again)
    new_rivals = np.zeros(len(inside), dtype=np.int64)
    tied = np.zeros(scores.num_images, dtype=bool)
    for start, stop, block in scores.blocks(256):
        here = np.flatnonzero((query >= start) & (query < stop))
        # The true items are counted already; what else is at the top?
        block[query[here] - start, candidate[here]] = -torch.inf
        counted = np.flatnonzero((query[inside] >= start) & (query[inside] < stop))
        row = query[inside][counted] - start
        seats = k - np.bincount(row, minlength=stop - start)
        values = _score_rivals(block, seats, start, score_pairs)
        new_rivals[counted] = (values[row] >= again[counted, None]).sum(axis=1)
        tied[start:stop] = (values == best[start:stop, None]).any(axis=1)
    if len(inside):
        dense = np.unique(query[inside], return_inverse=True)[1].astype(np.int64)
        place[inside] = places(dense, again, new_rivals)
    return place, tied


def _score_rivals(block: Tensor, seats: Integers, start: int, score_pairs: ScorePairs) -> Floats:
    """(rows, k) second scores of the rivals that take the seats left among the first k."""
    top = block.topk(min(int(seats.max()), block.shape[1]), dim=1)
    valid = np.arange(top.indices.shape[1])[None] < seats[:, None]
    valid &= top.values.cpu().numpy() > -np.inf
    row, column = np.nonzero(valid)
    values = np.full(valid.shape, np.nan)  # compares false with everything
    values[row, column] = _score(score_pairs, row + start, top.indices.cpu().numpy()[row, column])
    return values


def _score(score_pairs: ScorePairs, query: Integers, candidate: Integers) -> Floats:
    found = score_pairs(torch.from_numpy(np.stack([query, candidate], axis=1)))
    values = found.detach().double().cpu().numpy()
    if values.shape != (len(query),) or np.isnan(values).any():
        raise InputError(
            f"the second scorer gave {values.shape} scores, or NaN, for {len(query):,} pairs."
        )
    return np.asarray(values, dtype=np.float64)
