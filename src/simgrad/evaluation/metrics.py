"""What an evaluation found: every metric of some ranks, under the names of results.

Every name but those of both directions starts with its own: `i2t_` (an image looks for its
captions) or `t2i_` (a caption looks for its image).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.tables import TableFile, frame, html_table, plain_text
from simgrad.evaluation.declared import (
    DIRECTIONS,
    Floats,
    Metric,
    UnknownMetric,
    always,
    metric_of,
    per_query,
)
from simgrad.evaluation.ranks import Positions, Ranks, split_folds
from simgrad.evaluation.retrieval import HEADLINE_RECALLS


class Metrics:
    """What an evaluation found: `metrics.i2t_r1`, `metrics.rsum`, ...; `to_dict()` has all.

    `print(metrics)` shows a table, and so does a notebook; `to_frame()` is one of pandas.

    Examples:
        >>> metrics = simgrad.evaluate_similarities(torch.eye(4))
        >>> metrics.i2t_r1, metrics["rsum"]
        (100.0, 600.0)
    """

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
        if name not in self.values:
            raise UnknownMetric(name, self.values)
        return self.values[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.values]

    def to_dict(self) -> dict[str, float]:
        """All metrics by name."""
        return dict(self.values)

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each metric, with its label and value."""
        records = [
            {"metric": name, "label": metric_of(name).heading, "value": value}
            for name, value in self.values.items()
        ]
        return frame(records, index="metric")

    def __repr__(self) -> str:
        return (
            f"Metrics(rsum={self.values['rsum']:.1f}, i2t_r1={self.values['i2t_r1']:.1f}, "
            f"t2i_r1={self.values['t2i_r1']:.1f}, {len(self.ranks.i2t):,} images, "
            f"{len(self.ranks.t2i):,} captions)"
        )

    def __str__(self) -> str:
        return plain_text(metrics_table(self.values, title=self.used))

    def _repr_html_(self) -> str:
        return html_table(metrics_table(self.values, title=self.used))


def metrics_of(ranks: Ranks, recalls: Iterable[int] = HEADLINE_RECALLS, used: str = "") -> Metrics:
    """All metrics of some ranks; with folds, the mean of each metric over the folds.

    Examples:
        >>> run = simgrad.Run.open("runs/first")
        >>> simgrad.evaluation.metrics_of(run.ranks()).rsum == run.test["rsum"]
        True
    """
    chosen = always(check_recalls(recalls))
    folds = [
        {way: _summary(fold.positions[way], chosen, fold, way) for way in DIRECTIONS}
        for fold in split_folds(ranks)
    ]
    # (direction, metric) -> over folds: counts add up, everything else is a mean.
    found = {
        way: {
            one.name: float(
                (np.sum if one.combine == "total" else np.mean)([f[way][one.name] for f in folds])
            )
            for one in chosen
            if one.name in folds[0][way]
        }
        for way in DIRECTIONS
    }
    values = {
        f"{way}_{one.name}": found[way][one.name]
        for way in DIRECTIONS
        for one in chosen
        if one.directions and one.name in found[way]
    }
    for one in chosen:
        ways = [found[way][one.name] for way in DIRECTIONS if one.name in found[way]]
        if one.both is not None and len(ways) == len(DIRECTIONS):
            values[one.name] = over_both(one, ways)
    return Metrics(values, ranks, used)


def over_both(one: Metric, values: Sequence[Any]) -> Any:
    """One number of both directions."""
    return sum(values) / (len(values) if one.both == "mean" else 1)


def summary(positions: Positions, recalls: Iterable[int] = HEADLINE_RECALLS) -> dict[str, float]:
    """The metrics of one direction, without its name."""
    return _summary(positions, [m for m in always(check_recalls(recalls)) if m.directions])


def _summary(
    positions: Positions, chosen: Sequence[Metric], ranks: Ranks | None = None, way: str = ""
) -> dict[str, float]:
    each = per_query(positions, chosen, ranks, way)
    return {one.name: _combined(one, each[one.name]) for one in chosen if one.name in each}


def _combined(one: Metric, values: Floats) -> float:
    """One number from the queries' values."""
    if one.combine == "median":
        return float(np.floor(np.median(values)))
    return float(values.sum() if one.combine == "total" else values.mean())


def check_recalls(recalls: Iterable[int]) -> tuple[int, ...]:
    """The K of R@K that are asked for, with 1, 5 and 10."""
    if not isinstance(recalls, Iterable):
        raise InputError(
            f"`recalls` are several numbers, as in recalls=(1, 5), not {recalls!r:.60}."
        )
    ks = {int(k) for k in recalls}
    if any(k < 1 for k in ks):
        raise InputError(f"R@K needs K of 1 or more, not {min(ks)}.")
    return tuple(sorted(ks | set(HEADLINE_RECALLS)))


Bounds = Mapping[str, tuple[float, float]]


def metrics_table(
    values: Mapping[str, float],
    bounds: Bounds | None = None,
    *,
    level: float = 0.95,
    title: str = "",
) -> TableFile:
    """Both directions side by side, with intervals where there are any; then what is of both."""
    shown = [record for record in map(metric_of, values) if record.shown != "file"]
    columns = [""]
    for way in DIRECTIONS.values():
        columns += [way, f"{100 * level:g}%"] if bounds else [way]

    def cells(record: Metric | None) -> list[str]:
        number = "" if record is None else record.format(values[record.name])
        interval = "" if record is None else interval_text(record, (bounds or {}).get(record.name))
        return [number, interval] if bounds else [number]

    by_label: dict[str, dict[str, Metric]] = {}
    for record in shown:
        if record.direction:
            by_label.setdefault(record.label, {})[record.direction] = record
    rows = [
        (label, *(cell for way in DIRECTIONS for cell in cells(ways.get(way))))
        for label, ways in by_label.items()
    ]
    for record in shown:
        if not record.direction:
            label = f"{record.label}, both ways" if record.directions else record.label
            row = (label, *cells(record), *cells(None))
            rows.insert(0 if record.name == "rsum" else len(rows), row)  # what everybody looks for
    return TableFile(tuple(columns), tuple(rows), title)


def interval_text(record: Metric, bounds: tuple[float, float] | None) -> str:
    """[12.1, 13.4]"""
    return "" if bounds is None else f"[{record.format(bounds[0])}, {record.format(bounds[1])}]"


def p_text(p: float) -> str:
    """p with as many digits as mean something."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
