"""The comparison table: ours with intervals and significance, the published numbers beneath."""

import math

from simgrad.evaluation import Estimate, metric_of
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.report.blocks import Cell, Column, Paragraph, Row, Section, Table
from simgrad.report.material import Material, System
from simgrad.report.standings import Standing, printed_p, signed


def comparison(material: Material, found: list[Standing]) -> Section | None:
    """One table, groups under headings of their own."""
    if not material.split:
        return None
    known = {name for s in found for numbers in s.numbers.values() for name in numbers}
    metrics = [m for m in material.metrics if m in known]
    compared = any(standing.against_baseline for standing in found)
    columns = [Column("", numeric=False), *(_column(m) for m in metrics)]
    if compared:
        columns.append(Column("rsum against baseline"))
    rows: list[Row] = []
    for standing in found:
        if len(found) > 1:
            rows.append(Row([Cell(standing.group or "other runs")], "group"))
        for system in standing.systems:
            rows += _rows(material, standing, system, metrics, compared)
    table = Table("Comparison", columns, rows, _caption(material, found, compared))
    return Section("comparison", "Comparison", "Comparison", [table, *_method(found, compared)])


def _column(metric: str) -> Column:
    record = metric_of(metric)
    return Column(record.label, over=DIRECTIONS.get(record.direction, ""))


def _rows(
    material: Material, standing: Standing, system: System, metrics: list[str], compared: bool
) -> list[Row]:
    numbers = standing.numbers[system.label]
    done = len(system.tested) if material.split == "test" else len(system.histories)
    note = f"{done} seed{'' if done == 1 else 's'}"
    if done < system.planned:
        note = f"{done} of {system.planned} seeds"
    if system is standing.baseline and compared:
        note += ", baseline"
    cells = [Cell(system.label, note, key=True, colour=material.colour(system))]
    cells += [_number(numbers.get(m), m, _leads(standing, system, m)) for m in metrics]
    if compared:
        cells.append(_difference(standing, system))
    rows = [Row(cells)]
    if system.published:
        beside = [Cell("as published")]
        beside += [_published(system.published.get(m), m) for m in metrics]
        beside += [Cell("")] * (len(cells) - len(beside))
        rows.append(Row(beside, "aside"))
    return rows


def _leads(standing: Standing, system: System, metric: str) -> bool:
    known = {label: n[metric].mean for label, n in standing.numbers.items() if metric in n}
    if len(known) < 2 or system.label not in known:
        return False
    return known[system.label] == metric_of(metric).best(known.values())


def _number(estimate: Estimate | None, metric: str, strong: bool) -> Cell:
    if estimate is None or math.isnan(estimate.mean):
        return Cell("–")
    record, note = metric_of(metric), ""
    if estimate.low is not None and estimate.high is not None:
        note = f"{record.format(estimate.low)}–{record.format(estimate.high)}"
    return Cell(record.format(estimate.mean), note, strong)


def _published(value: tuple[float, float | None] | None, metric: str) -> Cell:
    if value is None:
        return Cell("–")
    (mean, deviation), record = value, metric_of(metric)
    return Cell(record.format(mean), "" if deviation is None else f"± {record.format(deviation)}")


def _difference(standing: Standing, system: System) -> Cell:
    gap = standing.against_baseline.get(system.label)
    if gap is None:
        return Cell("–" if system is not standing.baseline else "")
    p = gap.corrected
    note = f"{signed(gap.low)} to {signed(gap.high)}\n{printed_p(p)}"
    return Cell(signed(gap.difference), note, strong=p < 0.05)


def _caption(material: Material, found: list[Standing], compared: bool) -> str:
    split = "test" if material.split == "test" else "validation"
    parts = [f"Recall in percent on the {split} split, mean over seeds; bold is best."]
    if any(n.low is not None for s in found for e in s.numbers.values() for n in e.values()):
        parts.append("Beneath: 95% interval.")
    if compared:
        parts.append("Differences in bold are significant at 5% after Holm's correction.")
    if any(system.published for system in material.systems):
        parts.append(f"As published: mean ± standard deviation, {material.source}.")
    return " ".join(parts)


def _method(found: list[Standing], compared: bool) -> list[Paragraph]:
    if not any(s.ranks for standing in found for s in standing.systems):
        return []
    text = (
        "Intervals cover the choice of test images, each with all its captions, and of seeds where "
        "there are several. "
    )
    if compared:
        several = any(len(s.ranks) > 1 for standing in found for s in standing.systems)
        test = "a bootstrap over seeds and images" if several else "a permutation test over images"
        text += (
            f"Differences are paired over the same images: {test}, p corrected by Holm for the "
            "number of comparisons in a group. "
        )
        if any(standing.first_seeds for standing in found):
            text += "Where one setting has a single run, the first seed of each is compared."
    return [Paragraph([text], "note")]
