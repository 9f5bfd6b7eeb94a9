"""How training went: validation and loss, what was pushed, and what fine-tuning changed."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from simgrad.analysis.count_labels import COUNT_LABELS
from simgrad.evaluation import metric_of
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.pages.blocks import (
    Block,
    BodyRow,
    Cell,
    Column,
    Details,
    Figure,
    Figures,
    Key,
    Paragraph,
    Section,
    Table,
)
from simgrad.pages.charts import Curve, Points, line_chart
from simgrad.pages.glossary import explained
from simgrad.report.material import Material, System

Entry = dict[str, Any]
Reader = Callable[[Entry], float | None]
_VALIDATED = ("rsum", "i2t_r1", "t2i_r1")
_PUSHED = {  # figures of the weights, and what to see in them
    "effective": "How many negatives share a query's push; 1: only the hardest counts.",
    "hardest_share": "How much of the push the hardest negative takes.",
    "zero_share": "How many queries get no push: nothing is learned from them.",
}


def training(material: Material) -> Section | None:
    """Validation over epochs for all systems together, loss for each on its own scale."""
    shown = [s for s in material.systems if s.histories]
    if not shown:
        return None
    selected = sorted({s.runs[0].recipe.select for s in shown})
    figures = []
    for name in dict.fromkeys([*_VALIDATED, *selected]):
        metric = metric_of(name)
        title, high = f"validation: {metric.title}", metric.better == "high"
        see = f"{'Higher' if high else 'Lower'} is better; a line that still "
        see += f"{'rises' if high else 'falls'} at its end may gain from longer training."
        figures.append(_figure(material, shown, f"curve-{name}", title, _validated(name), see))
    losses = [
        _figure(material, [system], f"loss-{i}", f"loss of {system.label}", _loss,
                "A loss should fall and level off.")
        for i, system in enumerate(shown)
    ]  # fmt: skip
    if len(losses) == 1:
        figures += losses
    keys = [Key(s.label, material.colour(s)) for s in shown]
    words = "Quality on the {validation} split after each {epoch}."
    if any(len(s.histories) > 1 for s in shown):
        words += " Thin lines are single runs, each with its own {seed}; thick lines their mean."
    blocks: list[Block] = [Paragraph(explained(words)), Figures(figures, keys)]
    if len(losses) > 1:
        scale = (
            "Losses of different objectives have different scales, so each has an axis of its own."
        )
        if any(run.recipe.first_epochs for _, run in material.runs):
            scale += " It jumps where another objective takes over, after the first epochs."
        folded: list[Block] = [Paragraph([scale]), Figures(losses)]
        blocks.append(Details("The loss of each setting", folded))
    return Section("training", "How training went", "Training", blocks)


def pushed(material: Material) -> Section | None:
    """What each objective pushed during training, from the weights of one batch at a time."""
    shown = [s for s in material.systems if any(_recorded(h) for h in s.histories)]
    if not shown:
        return None
    figures = [
        _figure(material, shown, f"push-{name}", _title(name), _averaged(name), see)
        for name, see in _PUSHED.items()
        if any(_points(h, _averaged(name)) for s in shown for h in s.histories)
    ]
    keys = [Key(s.label, material.colour(s)) for s in shown]
    words = (
        "An objective drives a query and its {negatives} apart, each with a weight, its {push}. "
        "Every evaluation looked at one training batch: on how many negatives did the push fall, "
        "how much of it on the hardest, and how many queries got none?"
    )
    last = Details("The last batch, by direction", [_last(material, shown)])
    return Section(
        "push", "Which negatives it learned from", "Negatives",
        [Paragraph(explained(words)), Figures(figures, keys), last],
    )  # fmt: skip


def _title(name: str) -> str:
    count = COUNT_LABELS[name]
    return f"{count.label}, %" if count.share else count.label


def _figure(
    material: Material, systems: Sequence[System], name: str, title: str, read: Reader, see: str
) -> Figure:
    curves = [
        Curve.of(s.label, material.colour(s), [_points(h, read) for h in s.histories])
        for s in systems
    ]
    ends = [f"{c.label} ends at {c.mean[-1][1]:.4g}" for c in curves if c.mean]
    told = f"{title} over epochs. " + "; ".join(ends)
    return Figure(name, title, line_chart(curves, title), told, see)


def _points(history: Sequence[Entry], read: Reader) -> Points:
    return [(float(e["epoch"]), float(v)) for e in history if (v := read(e)) is not None]


def _validated(name: str) -> Reader:
    return lambda entry: entry["val"].get(name)


def _loss(entry: Entry) -> float | None:
    return entry.get("loss")


def _averaged(name: str) -> Reader:
    """Both directions together; shares in percent."""
    factor = 100.0 if COUNT_LABELS[name].share else 1.0

    def read(entry: Entry) -> float | None:
        values = [entry.get("attention", {}).get(way, {}).get(name) for way in DIRECTIONS]
        known = [float(v) for v in values if v is not None]
        return factor * fmean(known) if known else None

    return read


def _recorded(history: Sequence[Entry]) -> bool:
    return any(entry.get("attention", {}).get(way) for entry in history for way in DIRECTIONS)


def _last(material: Material, shown: Sequence[System]) -> Table:
    names = [n for n in COUNT_LABELS if n != "false_share"]  # not recorded while training
    rows = []
    for direction, way in DIRECTIONS.items():
        rows.append(BodyRow([Cell(way)], "group"))
        for system in shown:
            ends = [h[-1]["attention"] for h in system.histories if _recorded(h[-1:])]
            cells = [Cell(system.label, key=True, colour=material.colour(system))]
            for name in names:
                values = [e[direction][name] for e in ends if name in e.get(direction, {})]
                cells.append(Cell(COUNT_LABELS[name].printed(fmean(values)) if values else "–"))
            rows.append(BodyRow(cells))
    columns = [Column("", numeric=False)]
    columns += [Column(COUNT_LABELS[n].label, meaning=COUNT_LABELS[n].meaning) for n in names]
    return Table("Negatives in the last batch", columns, rows, "Mean over seeds.")


def finetuned(material: Material) -> Section | None:
    """Validation before the first step and at the best one; None where nothing was pretrained."""
    shown = [s for s in material.systems if any(h and h[0]["step"] == 0 for h in s.histories)]
    if not shown:
        return None
    words = "Quality on the {validation} split before the first step, and at its best."
    blocks: list[Block] = [Paragraph(explained(words)), _table(material, shown)]
    mixed = [s for s in shown if any(run.wise for run in s.finished)]
    if mixed:
        blocks += [
            Paragraph([_BETWEEN]),
            Figures([_curve(material, mixed)], _keys(material, mixed)),
        ]
    remembering = [s for s in shown if any(run.also for run in s.finished)]
    if remembering:
        blocks.append(_other_data(material, remembering))
    return Section("finetuned", "Before and after fine-tuning", "Fine-tuning", blocks)


_BETWEEN = (
    "Weights between the pretrained ones (0) and the trained ones (1): the best on the validation "
    "split is what the run keeps (WiSE-FT)."
)


def _keys(material: Material, systems: Sequence[System]) -> list[Key]:
    return [Key(s.label, material.colour(s)) for s in systems]


def _table(material: Material, systems: Sequence[System]) -> Table:
    rows = []
    for system in systems:
        select = system.runs[0].recipe.select
        histories = [h for h in system.histories if h and h[0]["step"] == 0]
        before = [h[0]["val"][select] for h in histories]
        metric = metric_of(select)
        after = [metric.best(entry["val"][select] for entry in h) for h in histories]
        first, last = sum(before) / len(before), sum(after) / len(after)
        cells = [Cell(system.label, key=True, colour=material.colour(system)), Cell(metric.heading)]
        cells += [Cell(metric.format(value)) for value in (first, last)]
        rows.append(BodyRow([*cells, Cell(f"{last - first:+.1f}")]))
    columns = [Column("", numeric=False), Column("", numeric=False)]
    columns += [Column(name) for name in ("before", "after", "difference")]
    return Table("Before and after", columns, rows, "Mean over seeds.")


def _other_data(material: Material, systems: Sequence[System]) -> Table:
    """What training forgot: other data, with the pretrained weights and with the best ones."""
    rows = []
    for system in systems:
        scored = [run.remembered for run in system.finished if run.remembered]
        data = next(run.also["dataset"] for run in system.finished if run.also)
        both = zip(*((before, after) for _, before, after in scored), strict=True)
        means = [sum(values) / len(scored) for values in both]
        cells = [Cell(system.label, key=True, colour=material.colour(system))]
        cells += [Cell(data), Cell(scored[0][0])]
        cells += [Cell(f"{value:.1f}") for value in means]
        rows.append(BodyRow([*cells, Cell(f"{means[1] - means[0]:+.1f}")]))
    columns = [Column(name, numeric=False) for name in ("", "data", "")]
    columns += [Column(name) for name in ("before", "after", "difference")]
    note = "Mean over seeds. Worse after than before: training forgot."
    return Table("Other data, before and after", columns, rows, note)


def _curve(material: Material, systems: Sequence[System]) -> Figure:
    title = "validation between pretrained and trained weights"
    curves = []
    for system in systems:
        select = system.runs[0].recipe.select
        lines = [
            [(float(p["alpha"]), float(p[select])) for p in run.wise["curve"]]
            for run in system.finished
            if run.wise
        ]
        curves.append(Curve.of(system.label, material.colour(system), lines))
    best = [f"{s.label}: alpha {run.wise['alpha']:g}" for s in systems for run in s.finished[:1]]
    see = "A hump between both ends is what mixing gains."
    return Figure("wise", title, line_chart(curves, title, x_label="alpha"), "; ".join(best), see)
