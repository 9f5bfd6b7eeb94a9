"""Training curves: how validation and loss went, and what the objective attended to meanwhile."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from simgrad.evaluation import metric_of
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.report.blocks import (
    Block,
    Cell,
    Column,
    Details,
    Figure,
    Figures,
    Key,
    Paragraph,
    Row,
    Section,
    Table,
)
from simgrad.report.charts import Curve, Points, line_chart
from simgrad.report.material import Material, System

Entry = dict[str, Any]
Reader = Callable[[Entry], float | None]
_MOST_POINTS = 160  # along one line: more cannot be seen
_VALIDATION = ("rsum", "i2t_r1", "t2i_r1")
_ATTENTION = {
    "effective": ("effective number of negatives", "How many negatives share a query's push."),
    "hardest_share": ("share on the hardest negative, %", "Of a query's push."),
    "zero_share": ("queries without any gradient, %", "Of the queries in a batch."),
}
_ALL_FIGURES = {
    "contributing": "contributing negatives",
    "effective": "effective number",
    "hardest_share": "push on the hardest",
    "zero_share": "queries without gradient",
    "faint_share": "with a faint gradient",
}
_SCALE = (
    "Losses of different objectives have different scales, so each has an axis of its own. A jump "
    "is where another objective took over after the first epochs."
)
_ATTENDED = (
    "An objective pushes a query away from negatives, each with a weight. These charts follow that "
    "weight on one training batch at every evaluation, both directions averaged: on how many "
    "negatives it falls, how much of it on the hardest, and how many queries get none."
)


def training(material: Material) -> Section | None:
    """Validation over steps for all systems together, loss for each on its own scale."""
    shown = [s for s in material.systems if s.histories]
    if not shown:
        return None
    selected = sorted({s.runs[0].recipe.select for s in shown})
    figures = []
    for name in dict.fromkeys([*_VALIDATION, *selected]):
        title = f"validation {metric_of(name).title}"
        figures.append(_figure(material, shown, f"curve-{name}", title, _validated(name)))
    losses = [
        _figure(material, [system], f"loss-{i}", f"loss · {system.short}", _loss)
        for i, system in enumerate(shown)
    ]
    if len(losses) == 1:
        figures += losses
    keys = [Key(s.label, material.colour(s)) for s in shown]
    blocks: list[Block] = [Figures(figures, keys)]
    if any(len(s.histories) > 1 for s in shown):
        blocks.append(Paragraph(["Thin lines are single seeds, thick lines their mean."], "note"))
    if len(losses) > 1:
        folded: list[Block] = [Figures(losses), Paragraph([_SCALE], "note")]
        blocks.append(Details("Loss over steps, one chart for each setting", folded))
    return Section("training", "Training", "Training", blocks)


def attended(material: Material) -> Section | None:
    """What each objective attended to during training, from the weights of one batch at a time."""
    shown = [s for s in material.systems if any(_recorded(h) for h in s.histories)]
    if not shown:
        return None
    figures = [
        _figure(material, shown, f"attention-{name}", title, _averaged(name), what)
        for name, (title, what) in _ATTENTION.items()
    ]
    keys = [Key(s.label, material.colour(s)) for s in shown]
    last = Details("The last batch, by direction", [_last(material, shown)])
    blocks: list[Block] = [Paragraph([_ATTENDED]), Figures(figures, keys), last]
    return Section("attention", "What the objective attended to", "Attention", blocks)


def _figure(
    material: Material,
    systems: Sequence[System],
    name: str,
    title: str,
    read: Reader,
    caption: str = "",
) -> Figure:
    curves = [_curve(material, system, read) for system in systems]
    ends = [f"{c.label} ends at {c.mean[-1][1]:.4g}" for c in curves if c.mean]
    told = f"{title} over training steps. " + "; ".join(ends)
    return Figure(name, title, line_chart(curves, title), told, caption)


def _curve(material: Material, system: System, read: Reader) -> Curve:
    runs = [run for history in system.histories if (run := _points(history, read))]
    return Curve(system.short, material.colour(system), runs, mean_curve(runs))


def _points(history: Sequence[Entry], read: Reader) -> Points:
    found = [(float(e["step"]), float(v)) for e in history if (v := read(e)) is not None]
    if len(found) <= _MOST_POINTS:
        return found
    return [found[i] for i in np.linspace(0, len(found) - 1, _MOST_POINTS).astype(int)]


def mean_curve(runs: Sequence[Points]) -> Points:
    """The mean over runs, at the steps that all of them have reached."""
    if len(runs) < 2:
        return list(runs[0]) if runs else []
    first, last = max(run[0][0] for run in runs), min(run[-1][0] for run in runs)
    steps = sorted({x for run in runs for x, _ in run if first <= x <= last})
    columns = [np.interp(steps, [x for x, _ in run], [y for _, y in run]) for run in runs]
    return [(x, float(y)) for x, y in zip(steps, np.mean(columns, axis=0), strict=True)]


def _validated(name: str) -> Reader:
    return lambda entry: entry["val"].get(name)


def _loss(entry: Entry) -> float | None:
    return entry.get("loss")


def _averaged(name: str) -> Reader:
    """Both directions together; shares in percent."""
    factor = 100.0 if name.endswith("share") else 1.0

    def read(entry: Entry) -> float | None:
        values = [entry.get("attention", {}).get(d, {}).get(name) for d in DIRECTIONS]
        known = [float(v) for v in values if v is not None]
        return factor * fmean(known) if known else None

    return read


def _recorded(history: Sequence[Entry]) -> bool:
    return any(entry.get("attention", {}).get("i2t") for entry in history)


def _last(material: Material, shown: Sequence[System]) -> Table:
    rows = []
    for direction, way in DIRECTIONS.items():
        rows.append(Row([Cell(way)], "group"))
        for system in shown:
            ends = [h[-1]["attention"] for h in system.histories if _recorded(h[-1:])]
            cells = [Cell(system.label, key=True, colour=material.colour(system))]
            for name in _ALL_FIGURES:
                values = [e[direction][name] for e in ends if name in e.get(direction, {})]
                cells.append(Cell(share_or_count(name, fmean(values)) if values else "–"))
            rows.append(Row(cells))
    columns = [Column("", numeric=False), *(Column(label) for label in _ALL_FIGURES.values())]
    return Table("Attention at the end of training", columns, rows, "Mean over seeds.")


def share_or_count(name: str, value: float) -> str:
    """Shares in percent, counts with one decimal."""
    return f"{100 * value:.1f}%" if name.endswith("share") else f"{value:.1f}"
