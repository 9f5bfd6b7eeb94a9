"""Metrics and comparisons as tables: for the terminal, for files and for notebooks."""

from collections.abc import Mapping

from simgrad.core.tables import Table
from simgrad.evaluation.declared import DIRECTIONS, Metric, metric_of

Bounds = Mapping[str, tuple[float, float]]


def metrics_table(
    values: Mapping[str, float],
    bounds: Bounds | None = None,
    *,
    level: float = 0.95,
    title: str = "",
    all_metrics: bool = False,
) -> Table:
    """Both directions side by side, with intervals where there are any; then what has none."""
    limits = bounds or {}
    records = {name: metric_of(name) for name in values}
    shown = {n: r for n, r in records.items() if all_metrics or r.shown != "file"}
    columns = [""]
    for way in DIRECTIONS.values():
        columns += [way, f"{100 * level:g}%"] if bounds else [way]
    rows: list[tuple[str, ...]] = []
    for label in dict.fromkeys(r.label for r in shown.values() if r.direction):
        row = [label]
        for way in DIRECTIONS:
            name = next((n for n, r in shown.items() if (r.direction, r.label) == (way, label)), "")
            row += _cells(name, values, limits, bool(bounds))
        rows.append(tuple(row))
    for name, record in shown.items():
        if not record.direction and record.shown != "file":
            both = f"{record.label}, both ways" if record.directions else record.label
            rest = [""] * (len(columns) - 2 - bool(bounds))
            rows.append((both, *_cells(name, values, limits, bool(bounds)), *rest))
    return Table(tuple(columns), tuple(rows), title)


def _cells(name: str, values: Mapping[str, float], bounds: Bounds, interval: bool) -> list[str]:
    number = metric_of(name).format(values[name]) if name in values else ""
    return [number, interval_text(metric_of(name), bounds.get(name))] if interval else [number]


def interval_text(record: Metric, bounds: tuple[float, float] | None) -> str:
    """[12.1, 13.4]"""
    return "" if bounds is None else f"[{record.format(bounds[0])}, {record.format(bounds[1])}]"


def p_text(p: float) -> str:
    """p with as many digits as mean something."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
