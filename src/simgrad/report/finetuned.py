"""What fine-tuning did to a pretrained model: before and after, and the way between both."""

from collections.abc import Sequence

from simgrad.evaluation import metric_of
from simgrad.pages.blocks import (
    Block,
    BodyRow,
    Cell,
    Column,
    Figure,
    Figures,
    Key,
    Paragraph,
    Section,
    Table,
)
from simgrad.pages.charts import Curve, line_chart
from simgrad.pages.glossary import explained
from simgrad.report.material import Material, System


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
