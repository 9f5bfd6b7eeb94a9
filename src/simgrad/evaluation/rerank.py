"""Re-ranking: a slow scorer orders again what a fast one put first.

For each query the first k candidates of the fast ranking are scored again, and only they change
places among themselves. What stands below k stays there.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.evaluator import Named, evaluate_scores
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.protocols import Fold, Protocol
from simgrad.evaluation.ranks import Booleans, Integers, Positions, Ranks, places
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.rivals import count_rows, is_rival
from simgrad.evaluation.scores import Scores

# (pairs, 2) of image row and caption row -> (pairs,) scores, higher = better
ScorePairs = Callable[[Tensor], Tensor]


def evaluate_reranked(
    scores: Scores,
    image_of_caption: Any,
    score_pairs: ScorePairs,
    k: int,
    *,
    protocol: str | Protocol = "all",
    recalls: Iterable[int] = HEADLINE_RECALLS,
    image_ids: Sequence[str] | None = None,
    caption_ids: Sequence[str] | None = None,
) -> Metrics:
    """Metrics after the first k of every query, in both directions, were scored again.

    Examples:
        >>> from simgrad.evaluation.scores import Matrix
        >>> exact = torch.eye(8)
        >>> metrics = simgrad.evaluation.evaluate_reranked(
        ...     Matrix(torch.rand(8, 8)),
        ...     torch.arange(8),
        ...     lambda pairs: exact[pairs[:, 0], pairs[:, 1]],
        ...     k=8,
        ... )
        >>> metrics.i2t_r1
        100.0
    """
    if k < 1:
        raise InputError(f"re-ranking needs at least one candidate, not {k}.")

    def rank(part: Scores, fold: Fold) -> Named:
        def again(pairs: Tensor) -> Tensor:  # rows of the fold -> rows of all
            image, caption = pairs.cpu().numpy().T
            rows = np.stack([fold.images[image], fold.captions[caption]], axis=1)
            return score_pairs(torch.from_numpy(rows))

        pairing = fold.image_of_caption
        captions = np.arange(len(pairing))
        caption_rank, i2t_tied = _rerank(part, pairing, captions, again, k)
        t2i, t2i_tied = _rerank(
            part.transposed(), captions, pairing, lambda pairs: again(pairs.flip(1)), k
        )
        return lambda images, captions: Ranks(
            i2t=Positions.of(pairing, caption_rank).best,
            t2i=t2i,
            caption_rank=caption_rank,
            image_of_caption=pairing,
            image_ids=tuple(images),
            caption_ids=tuple(captions),
            fold=np.zeros(len(i2t_tied), dtype=np.int64),
            i2t_tied=i2t_tied,
            t2i_tied=t2i_tied,
        )

    found = evaluate_scores(
        scores,
        image_of_caption,
        protocol=protocol,
        recalls=recalls,
        image_ids=image_ids,
        caption_ids=caption_ids,
        rank=rank,
    )
    found.used = f"{found.used} The first {k} of every query were scored again."
    return found


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
        new_rivals[counted] = is_rival(values[row], again[counted, None]).sum(axis=1)
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
    values = found.detach().cpu().double().numpy()
    if values.shape != (len(query),) or np.isnan(values).any():
        raise InputError(
            f"the second scorer gave {values.shape} scores, or NaN, for {len(query):,} pairs."
        )
    return np.asarray(values, dtype=np.float64)
