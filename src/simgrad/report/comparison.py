"""The comparison table, with a paper's numbers beneath; and cross-retrieval ranks of true pairs."""

import math

import numpy as np

from simgrad.core.text import counted
from simgrad.evaluation import Estimate, cross_ranks, histogram, metric_of
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.pages.blocks import (
    Block,
    BodyRow,
    Cell,
    Column,
    Details,
    Figure,
    Figures,
    Paragraph,
    Section,
    Table,
)
from simgrad.pages.charts import share_chart
from simgrad.pages.glossary import explained
from simgrad.report.material import Material, System
from simgrad.report.standings import GroupStanding, printed_p, signed
from simgrad.runs.outcome import has_diverged

_GAP = "difference in rsum from the baseline, on the same images; bold: significant at 5%"


def comparison(material: Material, found: list[GroupStanding]) -> Section | None:
    """One table, groups under headings of their own."""
    if not material.split:
        return None
    known = {name for s in found for numbers in s.numbers.values() for name in numbers}
    metrics = [m for m in material.metrics if m in known]
    compared = any(standing.against_baseline for standing in found)
    columns = [Column("", numeric=False), *(_column(metric) for metric in metrics)]
    if compared:
        columns.append(Column("against the baseline", meaning=_GAP))
    rows: list[BodyRow] = []
    for standing in found:
        if len(found) > 1:
            rows.append(BodyRow([Cell(standing.group or "other runs")], "group"))
        unknown = [one for one in standing.systems if one not in standing.order]
        for system in [*standing.order, *unknown]:
            rows += _rows(material, standing, system, metrics, compared)
    table = Table("Comparison", columns, rows, _caption(material, found, compared))
    words = explained(_words(material, found, compared))
    return Section("comparison", "All numbers", "Numbers", [Paragraph(words), table])


def _column(metric: str) -> Column:
    record = metric_of(metric)
    over = DIRECTIONS.get(record.direction, "")
    return Column(record.label, over=over, meaning=record.description)


def _rows(
    material: Material, standing: GroupStanding, system: System, metrics: list[str], compared: bool
) -> list[BodyRow]:
    numbers = standing.numbers[system.label]
    done = len(system.histories)
    if material.split == "test":
        done = sum(bool(run.test) or has_diverged(run) for run in system.ended)
    what = "average" if system.average_of else "seed"
    note = counted(done, what)
    if done < system.planned:
        note = f"{done} of {counted(system.planned, what)}"
    cells = [Cell(system.label, note, key=True, colour=material.colour(system))]
    cells += [_number(numbers.get(m), m, _leads(standing, system, m)) for m in metrics]
    if compared:
        cells.append(_difference(standing, system))
    rows = [BodyRow(cells)]
    if system.published:
        unlike = f"other data or protocol: {system.unlike}" if system.unlike else ""
        beside = [Cell("in the paper", unlike)]
        beside += [_published(system.published.get(m), m) for m in metrics]
        beside += [Cell("")] * (len(cells) - len(beside))
        rows.append(BodyRow(beside, "aside"))
    return rows


def _leads(standing: GroupStanding, system: System, metric: str) -> bool:
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


def _difference(standing: GroupStanding, system: System) -> Cell:
    gap = standing.against_baseline.get(system.label)
    if gap is None:
        return Cell("–" if system is not standing.baseline else "baseline")
    p = gap.corrected
    note = f"{signed(gap.low)} to {signed(gap.high)}\n{printed_p(p)}"
    return Cell(signed(gap.difference), note, strong=p < 0.05)


def _words(material: Material, found: list[GroupStanding], compared: bool) -> str:
    split = "test" if material.split == "test" else "validation"
    words = f"Every setting on the {split} split, mean over seeds; the best of each column is bold."
    if len(material.systems) == 1:
        words = f"All metrics on the {split} split."
    if any(n.low is not None for s in found for e in s.numbers.values() for n in e.values()):
        words += " Beneath each number stands its {95% interval}."
    if compared:
        words += " The last column compares with the {baseline} and gives {p}."
    if any(len(standing.against_baseline) > 1 for standing in found):
        words += " Its intervals and p hold for all of them together."
    return words


def _caption(material: Material, found: list[GroupStanding], compared: bool) -> str:
    parts = [_averages(material)] if any(s.average_of for s in material.systems) else []
    if any(system.published for system in material.systems):
        parts.append(f"In the paper: mean ± standard deviation, {material.source}.")
    if not compared:
        return " ".join(parts)
    if any(len(draws) > 1 for standing in found for draws in standing.ranks.values()):
        parts.append("Differences: over seeds and images, paired over the same images.")
    else:
        parts.append("Differences: over images, paired; nothing is known of other seeds.")
    if any(len({min(2, len(r)) for r in s.ranks.values() if r}) > 1 for s in found):
        parts.append("A setting with a single run is not compared: its seeds are not known.")
    return " ".join(parts)


def _averages(material: Material) -> str:
    """What each average is the mean of."""
    told = []
    for system in material.systems:
        if system.average_of:
            alike = len(set(system.average_of)) == 1
            several = f"{len(system.average_of)} seeds of {system.average_of[0]}"
            told.append(f"{system.label}: {several if alike else ', '.join(system.average_of)}")
    return f"Mean similarities of several models. {'; '.join(told)}."


_WORDS = (
    "A pair is found well only if its image is found from its text and its text from its image. "
    "Its {cross-retrieval rank} says so: 1 means first both ways."
)


def crossed(material: Material) -> Section | None:
    """The histogram of each system, mean over seeds."""
    shown = [s for s in material.systems if s.ranks]
    if not shown:
        return None
    counts = {s.label: [histogram(cross_ranks(ranks)) for ranks in s.ranks] for s in shown}
    names = list(next(iter(counts.values()))[0])
    rows = []
    for system in shown:
        each = [[c[n] / sum(c.values()) for n in names] for c in counts[system.label]]
        shares = [float(x) for x in np.mean(each, axis=0)]
        rows.append((system.label, material.colour(system), shares))
    told = "; ".join(f"{label}: {_told(names, values)}" for label, _, values in rows)
    title = "true pairs by cross-retrieval rank"
    see = "The longer the full blue on the left, the more pairs are found first in both directions."
    figure = Figure("cross-ranks", title, share_chart(rows, names, title), told, see)
    lines = []
    for system in shown:
        name = Cell(system.label, key=True, colour=material.colour(system))
        means = [np.mean([c[n] for c in counts[system.label]]) for n in names]
        lines.append(BodyRow([name, *(Cell(f"{mean:,.0f}") for mean in means)]))
    columns = [Column("", numeric=False), *(Column(n, over="rank") for n in names)]
    caption = "Test pairs, mean over seeds."
    table = Table("Pairs by cross-retrieval rank", columns, lines, caption)
    blocks: list[Block] = [
        Paragraph(explained(_WORDS)),
        Figures([figure]),
        Details("In numbers", [table]),
    ]
    return Section("crossranks", "Found in both directions", "Both ways", blocks)


def _told(names: list[str], values: list[float]) -> str:
    return ", ".join(f"rank {n} {100 * v:.0f}%" for n, v in zip(names, values, strict=True))
