"""The cross-retrieval rank of a true pair: the worse of its two ranks.

A pair may stand first among the pairs that share its image and far down among those that share
its text. With r_i the rank of the image for the text and r_t the rank of the text for the
image, the image's other captions left out, the cross-retrieval rank is max(5 r_i - 4, r_t); the
5 (captions per image) weighs the two lists alike. From the supplement of Chen, Deng, Luo:
"Adaptive Offline Quintuplet Loss for Image-Text Matching", ECCV 2020, which draws how often each
interval of ranks occurs and names rank 1 and ranks above 200; the intervals between are ours.
"""

from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.ranks import Integers, Ranks

INTERVALS = ((1, 1), (2, 10), (11, 50), (51, 100), (101, 200), (201, None))


def cross_ranks(ranks: Ranks) -> Integers:
    """(captions,) the cross-retrieval rank of each caption and its image.

    Examples:
        >>> metrics = simgrad.evaluate_similarities(torch.tensor([[0.9, 0.2], [0.8, 0.3]]))
        >>> simgrad.evaluation.cross_ranks(metrics.ranks).tolist()
        [1, 2]
    """
    order = np.lexsort((ranks.caption_rank, ranks.image_of_caption))
    begin = np.concatenate([[0], np.cumsum(np.bincount(ranks.image_of_caption))])[:-1]
    siblings = np.empty_like(ranks.caption_rank)  # captions of the same image that stand before
    siblings[order] = np.arange(len(order)) - begin[ranks.image_of_caption[order]]
    text_rank = ranks.caption_rank - siblings
    captions_per_image = len(ranks.t2i) / len(ranks.i2t)
    # Uneven numbers of captions give a broken factor: round up, so that 1 stays 1.
    image_rank = np.ceil(captions_per_image * (ranks.t2i - 1) - 1e-9).astype(np.int64) + 1
    return np.asarray(np.maximum(image_rank, text_rank), dtype=np.int64)


def histogram(values: Integers) -> dict[str, int]:
    """How many pairs fall in each interval.

    Examples:
        >>> import numpy as np
        >>> simgrad.evaluation.histogram(np.array([1, 3, 30]))
        {'1': 1, '2-10': 1, '11-50': 1, '51-100': 0, '101-200': 0, '>200': 0}
    """
    counts = {}
    for low, high in INTERVALS:
        inside = (values >= low) & (values <= high) if high else values >= low
        counts[interval_name(low, high)] = int(inside.sum())
    return counts


def interval_name(low: int, high: int | None) -> str:
    """How an interval is printed."""
    if high is None:
        return f">{low - 1}"
    return str(low) if low == high else f"{low}-{high}"


@dataclass(frozen=True)
class CrossComparison:
    """Two systems' cross-retrieval ranks of the same pairs."""

    first: dict[str, int]
    second: dict[str, int]
    better: int  # pairs that the second ranks better than the first
    worse: int
    same: int


def compare_cross_ranks(first: Ranks, second: Ranks) -> CrossComparison:
    """Histograms side by side, and how many pairs moved.

    Examples:
        >>> S = torch.eye(3)
        >>> first = simgrad.evaluate_similarities(S.flip(0)).ranks
        >>> second = simgrad.evaluate_similarities(S).ranks
        >>> simgrad.evaluation.compare_cross_ranks(first, second).better
        2
    """
    if first.caption_ids != second.caption_ids or first.image_ids != second.image_ids:
        raise InputError("two systems can be compared on the same images and captions only.")
    a, b = cross_ranks(first), cross_ranks(second)
    return CrossComparison(
        histogram(a), histogram(b), int((b < a).sum()), int((b > a).sum()), int((a == b).sum())
    )
