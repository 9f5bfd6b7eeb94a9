"""The metrics of the field, declared.

`positions.best` is the place of a query's best true item, `positions.places` those of all of them,
`positions.total(values)` adds values of true items up for each query.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.evaluation.declared import RECALL, metric
from simgrad.evaluation.ranks import Positions

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
