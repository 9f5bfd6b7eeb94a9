"""The comparison table: ours with intervals and significance, the published numbers beneath."""

import math

from simgrad.report.blocks import Cell, Column, Paragraph, Row, Section, Table
from simgrad.report.material import Material, System
from simgrad.report.standings import Estimate, Standing, corrected, printed_p, signed
from simgrad.studies.table import decimals

_WAYS = {"i2t": "image → text", "t2i": "text → image"}
_LOW_IS_GOOD = ("medr", "meanr")


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
    way, _, rest = metric.partition("_")
    if way not in _WAYS:
        return Column(metric.replace("_", " "))
    label = f"R@{rest[1:]}" if rest[:1] == "r" and rest[1:].isdigit() else rest.replace("_", " ")
    return Column(label, over=_WAYS[way])


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
    best = min(known.values()) if metric.endswith(_LOW_IS_GOOD) else max(known.values())
    return known[system.label] == best


def _number(estimate: Estimate | None, metric: str, strong: bool) -> Cell:
    if estimate is None or math.isnan(estimate.mean):
        return Cell("–")
    digits = decimals(metric)
    note = ""
    if estimate.low is not None and estimate.high is not None:
        note = f"{estimate.low:.{digits}f}–{estimate.high:.{digits}f}"
    return Cell(f"{estimate.mean:.{digits}f}", note, strong)


def _published(value: tuple[float, float | None] | None, metric: str) -> Cell:
    if value is None:
        return Cell("–")
    (mean, deviation), digits = value, decimals(metric)
    return Cell(f"{mean:.{digits}f}", f"± {deviation:.{digits}f}" if deviation is not None else "")


def _difference(standing: Standing, system: System) -> Cell:
    gap = standing.against_baseline.get(system.label)
    if gap is None:
        return Cell("–" if system is not standing.baseline else "")
    p = corrected(gap)
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
