"""The metrics, their names and what they mean: all of them, in one place.

Every name but the sums starts with its direction: `i2t_` (an image looks for its captions) or
`t2i_` (a caption looks for its image).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.evaluation.ranks import Positions, Ranks, split_folds

Floats = npt.NDArray[np.float64]

DIRECTIONS = ("i2t", "t2i")
HEADLINE_RECALLS = (1, 5, 10)  # what rsum adds up, whatever other K are asked for
_DEPTHS = (5, 10)

# Without the direction; {k} is any K.
DESCRIPTIONS = {
    "r{k}": "R@K: queries with a true item among the first K, in percent",
    "average_recall": "mean of R@1, R@5, R@10, in percent (without a direction: of all six)",
    "medr": "median rank of the best true item, rounded down",
    "meanr": "mean rank of the best true item",
    "mrr": "mean of 1 / rank of the best true item, 0 to 1",
    "map": "mean average precision over the whole list, 0 to 1",
    "map{k}": "mAP@K, K = 5 and 10: precision at each true item found, over min(true items, K)",
    "map{k}_hits": "the same over the true items found, as some papers print it: higher",
    "map_at_r": "mAP@R, R = number of the query's true items, 0 to 1",
    "rprecision": "share of true items among the first R, 0 to 1",
    "ties": "queries whose rank a tie made worse (without a direction: of both)",
    "rsum": "sum of the six R@1, R@5, R@10 (no direction)",
}


class Metrics:
    """What an evaluation found: `metrics.i2t_r1`, `metrics.rsum`, ...; `to_dict()` has all."""

    def __init__(self, values: dict[str, float], ranks: Ranks, used: str = "") -> None:
        self.values = values
        self.ranks = ranks
        self.used = used  # which images and captions, in words

    def __getattr__(self, name: str) -> float:
        values: dict[str, float] = self.__dict__.get("values", {})
        if name not in values:
            raise AttributeError(f"there is no metric '{name}'; there are: {', '.join(values)}")
        return values[name]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def to_dict(self) -> dict[str, float]:
        """All metrics by name."""
        return dict(self.values)

    def __repr__(self) -> str:
        shown = [f"{d}_r{k}" for d in DIRECTIONS for k in HEADLINE_RECALLS] + ["rsum", "ties"]
        return f"Metrics({', '.join(f'{n}={self.values[n]:.4g}' for n in shown)})"


def metrics_of(ranks: Ranks, recalls: Iterable[int] = HEADLINE_RECALLS, used: str = "") -> Metrics:
    """All metrics of some ranks; with folds, the mean of each metric over the folds."""
    ks = check_recalls(recalls)
    folds = [_metrics_of_one(fold, ks) for fold in split_folds(ranks)]
    values = {name: float(np.mean([fold[name] for fold in folds])) for name in folds[0]}
    for name in ("i2t_ties", "t2i_ties", "ties"):  # counts add up
        values[name] = float(sum(fold[name] for fold in folds))
    return Metrics(values, ranks, used)


def _metrics_of_one(ranks: Ranks, ks: Sequence[int]) -> dict[str, float]:
    values = {}
    for direction, positions in (("i2t", ranks.i2t_positions), ("t2i", ranks.t2i_positions)):
        for name, value in summary(positions, ks).items():
            values[f"{direction}_{name}"] = value
    values["i2t_ties"] = float(ranks.i2t_tied.sum())
    values["t2i_ties"] = float(ranks.t2i_tied.sum())
    values["ties"] = float(ranks.ties)
    return values | sums(values)


def summary(positions: Positions, recalls: Iterable[int] = HEADLINE_RECALLS) -> dict[str, float]:
    """The metrics of one direction, without its name."""
    each = per_query(positions, check_recalls(recalls))
    values = {name: float(numbers.mean()) for name, numbers in each.items()}
    values["average_recall"] = float(np.mean([values[f"r{k}"] for k in HEADLINE_RECALLS]))
    values["medr"] = float(np.floor(np.median(positions.best)))
    return values


def sums(values: dict[str, float]) -> dict[str, float]:
    """What is added up over both directions."""
    six = [values[f"{d}_r{k}"] for d in DIRECTIONS for k in HEADLINE_RECALLS]
    return {"average_recall": float(np.mean(six)), "rsum": float(np.sum(six))}


def per_query(positions: Positions, ks: Sequence[int] = HEADLINE_RECALLS) -> dict[str, Floats]:
    """For every metric that is a mean over queries, the value of each query."""
    best, sizes, places = positions.best, positions.sizes, positions.places
    each: dict[str, Floats] = {f"r{k}": np.where(best <= k, 100.0, 0.0) for k in ks}
    each["meanr"] = best.astype(np.float64)
    each["mrr"] = 1.0 / best
    precision = positions.turns / places  # precision at each true item
    begin = positions.offsets[:-1]

    def total(values: npt.NDArray[Any]) -> Floats:
        return np.add.reduceat(values.astype(np.float64), begin)

    each["map"] = total(precision) / sizes
    for depth in _DEPTHS:
        found = total(precision * (places <= depth))
        hits = total(places <= depth)
        each[f"map{depth}"] = found / np.minimum(sizes, depth)
        each[f"map{depth}_hits"] = found / np.maximum(hits, 1)
    within = places <= np.repeat(sizes, sizes)
    each["map_at_r"] = total(precision * within) / sizes
    each["rprecision"] = total(within) / sizes
    return each


def check_recalls(recalls: Iterable[int]) -> tuple[int, ...]:
    """The K of R@K that are asked for, with 1, 5 and 10."""
    ks = {int(k) for k in recalls}
    if any(k < 1 for k in ks):
        raise InputError(f"R@K needs K of 1 or more, not {min(ks)}.")
    return tuple(sorted(ks | set(HEADLINE_RECALLS)))
