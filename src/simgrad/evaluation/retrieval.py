"""The metrics of the field, declared.

`positions.best` is the place of a query's best true item, `positions.places` those of all of them,
`positions.total(values)` adds values of true items up for each query.

The last part is the cross-retrieval rank of a true pair: the worse of its two ranks.

A pair may stand first among the pairs that share its image and far down among those that share
its text. With r_i the rank of the image for the text and r_t the rank of the text for the
image, the image's other captions left out, the cross-retrieval rank is max(5 r_i - 4, r_t); the
5 (captions per image) weighs the two lists alike. From the supplement of Chen, Deng, Luo:
"Adaptive Offline Quintuplet Loss for Image-Text Matching", ECCV 2020, which draws how often each
interval of ranks occurs and names rank 1 and ranks above 200; the intervals between are ours.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.evaluation.declared import RECALL, metric
from simgrad.evaluation.ranks import Integers, Positions, Ranks

HEADLINE_RECALLS = (1, 5, 10)  # what rsum adds up
Values = npt.NDArray[Any]
_PERCENT: Any = {"bounds": (0.0, 100.0)}
_SHARE: Any = {"digits": 3, "bounds": (0.0, 1.0), "shown": "table"}


@metric(
    RECALL, at=HEADLINE_RECALLS, label="R@{k}", **_PERCENT,
    description="queries with a right answer among the first {k}, in percent",
)  # fmt: skip
def recall(positions: Positions, k: int) -> Values:
    return 100.0 * (positions.best <= k)


@metric(
    "rsum", label="rsum", both="sum", directions=False, bounds=(0.0, 600.0),
    description="sum of R@1, R@5 and R@10 of both directions",
)  # fmt: skip
def rsum(positions: Positions) -> Values:
    return sum(recall(positions, k) for k in HEADLINE_RECALLS)  # type: ignore[return-value]


@metric(
    "average_recall", label="average recall", both="mean", **_PERCENT, shown="table",
    description="mean of R@1, R@5 and R@10, in percent; without a direction, of all six",
)  # fmt: skip
def average_recall(positions: Positions) -> Values:
    return rsum(positions) / len(HEADLINE_RECALLS)


@metric(
    "medr", label="median rank", combine="median", digits=0, better="low", bounds=(1.0, np.inf),
    shown="table", description="median rank of the best true item, rounded down",
)  # fmt: skip
def median_rank(positions: Positions) -> Values:
    return positions.best


@metric(
    "meanr", label="mean rank", better="low", bounds=(1.0, np.inf), shown="compared",
    description="mean rank of the best true item",
)  # fmt: skip
def mean_rank(positions: Positions) -> Values:
    return positions.best


@metric("mrr", label="MRR", **_SHARE, description="mean of 1 / rank of the best true item")
def reciprocal_rank(positions: Positions) -> Values:
    return 1.0 / positions.best


@metric(
    "map", label="mAP", **(_SHARE | {"shown": "file"}),
    description="mean average precision over the whole list",
)  # fmt: skip
def average_precision(positions: Positions) -> Values:
    return positions.total(positions.precision) / positions.sizes


def _precision_within(positions: Positions, k: int) -> Values:
    return positions.total(positions.precision * (positions.places <= k))


@metric(
    "map{k}", at=(5, 10), label="mAP@{k}", **_SHARE,
    description="precision at each true item among the first {k}, over min(true items, {k})",
)  # fmt: skip
def average_precision_at(positions: Positions, k: int) -> Values:
    return _precision_within(positions, k) / np.minimum(positions.sizes, k)


@metric(
    "map{k}_hits", at=(5, 10), label="mAP@{k} over hits", **_SHARE,
    description="the same over the true items found, as some papers print it: higher",
    paper="Bleeker and de Rijke, ECIR 2022",
)  # fmt: skip
def average_precision_over_hits(positions: Positions, k: int) -> Values:
    hits = positions.total(positions.places <= k)
    return _precision_within(positions, k) / np.maximum(hits, 1)


@metric(
    "map_at_r", label="mAP@R", **(_SHARE | {"shown": "compared"}),
    description="mAP@K with K the number of the query's true items",
    paper="Musgrave et al., ECCV 2020",
)  # fmt: skip
def average_precision_at_r(positions: Positions) -> Values:
    return positions.total(positions.precision * positions.within_size) / positions.sizes


@metric(
    "rprecision", label="R-precision", **_SHARE,
    description="share of true items among the first R, R their number",
)  # fmt: skip
def r_precision(positions: Positions) -> Values:
    return positions.total(positions.within_size) / positions.sizes


@metric(
    "ties", label="ties", combine="total", both="sum", digits=0, better="low", shown="table",
    description="queries whose rank a tie made worse; without a direction, of both",
)  # fmt: skip
def ties(positions: Positions) -> Values | None:
    return positions.tied


# What comes from similarities and from people rather than from ranks: computed where it is asked
# for, declared here so that it is listed and printed like everything else.
_RATED: Any = {"digits": 3, "bounds": (-1.0, 1.0), "shown": "file"}
_COUNT: Any = {"digits": 0, "shown": "file"}
metric("ndcg{k}", at=(10,), label="NDCG@{k}", **(_RATED | {"bounds": (0.0, 1.0)}),
       description="graded gain of the first {k}, over that of the best order")(None)  # fmt: skip
metric("kendall_b", label="Kendall's tau-b", **_RATED,
       description="similarities against the mean rating of a pair")(None)  # fmt: skip
metric("kendall_c", label="Kendall's tau-c", **_RATED,
       description="similarities against every single rating")(None)  # fmt: skip
metric("spearman", label="Spearman's rho", **_RATED,
       description="similarities against the mean rating of a pair")(None)  # fmt: skip
metric("pairs", label="pairs", **_COUNT,
       description="pairs that are true, or that people judged")(None)  # fmt: skip
metric("seconds_per_batch", label="s/batch", digits=3, better="low", shown="file",
       description="seconds of a batch of training, without evaluations")(None)  # fmt: skip
metric("seconds_ratio", label="times as long", digits=2, better="low", shown="file",
       description="seconds of a batch, over those of the baseline")(None)  # fmt: skip
metric("approved", label="approved pairs", **_COUNT,
       description="pairs beyond the pairing that the crowd approved of")(None)  # fmt: skip


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
