"""Metrics and comparisons as tables: for the terminal, for files and for notebooks."""

from collections.abc import Mapping

from simgrad.core.tables import TableFile
from simgrad.evaluation.declared import DIRECTIONS, Metric, metric_of

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
            rows.append((label, *cells(record), *cells(None)))
    return TableFile(tuple(columns), tuple(rows), title)


def interval_text(record: Metric, bounds: tuple[float, float] | None) -> str:
    """[12.1, 13.4]"""
    return "" if bounds is None else f"[{record.format(bounds[0])}, {record.format(bounds[1])}]"


def p_text(p: float) -> str:
    """p with as many digits as mean something."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
