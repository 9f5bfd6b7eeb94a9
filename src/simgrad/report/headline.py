"""The headline: which objective won, by how much, and how sure that is."""

from collections.abc import Callable

from simgrad.evaluation import Difference, metric_of
from simgrad.pages.blocks import (
    Block,
    Callout,
    Figure,
    Figures,
    Inline,
    Key,
    Paragraph,
    Strong,
    Term,
    Words,
)
from simgrad.pages.charts import Interval, interval_chart
from simgrad.pages.glossary import explain
from simgrad.report.material import Material, System
from simgrad.report.standings import Standing, printed_p, signed

_SURE = 0.05
_MOST_MISSING = 12
_MOST_NAMES = 3
_RSUM = Term("rsum", metric_of("rsum").description)
_FLATTERING = (
    "No run has test numbers yet. The best moment of each run was chosen on the numbers shown "
    "here, so they look better than they are."
)
_UNSURE = ". How sure that is cannot be told without ranks on the same test queries."


def headline(material: Material, found: list[Standing]) -> list[Block]:
    """What opens the report."""
    blocks: list[Block] = []
    if not material.split:
        blocks.append(Paragraph(["No run has been evaluated yet."], "lead"))
    for standing in found:
        if standing.order:
            start: list[Inline] = []
            if len(found) > 1 and standing.group:
                start = [f"{standing.group}: "]
            blocks.append(Paragraph([*start, *_sentence(material, standing)], "lead"))
    if material.answer:
        blocks.append(Callout("What simgrad choose answered", material.answer))
    if material.claim:
        blocks.append(Paragraph(["The claim under test: ", material.claim]))
    if material.missing:
        blocks.append(_missing(material.missing))
    if material.split == "val":
        blocks.append(Callout("These are validation numbers", [_FLATTERING]))
    for index, standing in enumerate(found):
        if standing.order:
            blocks.append(_figures(material, standing, index))
    return blocks


def _missing(lines: list[str]) -> Callout:
    title = f"{len(lines)} parts of this are missing or unfinished"
    if len(lines) == 1:
        title = "One part of this is missing or unfinished"
    more = len(lines) - _MOST_MISSING
    return Callout(title, [*lines[:_MOST_MISSING], *([f"and {more} more."] if more > 0 else [])])


def _sentence(material: Material, standing: Standing) -> Words:
    def key(system: System) -> Key:
        return Key(system.label, material.colour(system))

    best = standing.order[0]
    number = standing.numbers[best.label]["rsum"]
    figure: list[Inline] = [Strong(f"{number.mean:.1f}"), " ", _RSUM]
    if len(standing.order) == 1:
        interval: list[Inline] = []
        if number.low is not None and number.high is not None:
            interval = [" (", explain("95% interval"), f" {number.low:.1f} to {number.high:.1f})"]
        where = f" on the {_split(material)} split{_seeds(best)}."
        return [key(best), " reaches ", *figure, *interval, where]
    second, gap = standing.order[1], standing.lead()
    lead = f"{number.mean - standing.numbers[second.label]['rsum'].mean:.1f}"
    if gap is None:
        return [key(best), " leads with ", *figure, f", {lead} above ", key(second), _UNSURE]
    lead = f"{gap.difference:.1f}".replace("-", "−")
    seeds = _seeds(best)
    sure: list[Inline] = [" ", *_certainty(gap), f"{seeds}."]
    differences = standing.against_best
    rest = [s for s in standing.order[1:] if s.label in differences]
    tied = [s for s in rest if differences[s.label].corrected >= _SURE]
    base = _base(standing, key)
    if not tied:
        return [key(best), " wins with ", *figure, f": {lead} above ", key(second), *sure, *base]
    names: list[Inline] = [f"{len(tied)} others"] if len(tied) > _MOST_NAMES else []
    for i, system in enumerate(tied if not names else []):
        names += ["" if i == 0 else " and " if i == len(tied) - 1 else ", ", key(system)]
    start: list[Inline] = [key(best), " comes first with ", *figure]
    return [*start, ", but cannot be told apart from ", *names, f": it leads by {lead}",
            *([] if tied == [second] else [" over the second"]), *sure, *base]  # fmt: skip


def _base(standing: Standing, key: Callable[[System], Key]) -> list[Inline]:
    """The best against the baseline, where that is another than the second."""
    best, base = standing.order[0], standing.baseline
    gap = standing.against_baseline.get(best.label)
    if gap is None or base is None or base in standing.order[:2]:
        return []
    lead = f" It is {gap.difference:.1f} above the baseline "
    return [lead, key(base), " ", *_certainty(gap), "."]


def _certainty(gap: Difference) -> list[Inline]:
    low, high = (f"{x:.1f}".replace("-", "−") for x in (gap.low, gap.high))
    sign = printed_p(gap.corrected).removeprefix("p")
    return ["(", explain("95% interval"), f" {low} to {high}, ", explain("p"), f"{sign})"]


def _seeds(system: System) -> str:
    count = len(system.tested or system.histories)
    return f", over {count} seeds" if count > 1 else ", with one seed"


def _split(material: Material) -> str:
    return "test" if material.split == "test" else "validation"


def _figures(material: Material, standing: Standing, index: int) -> Figures:
    rows = []
    for system in standing.order:
        number = standing.numbers[system.label]["rsum"]
        # A number of another test has no place on this scale.
        published = None if system.unlike else system.published.get("rsum")
        rows.append(
            Interval(system.short, material.colour(system), number.mean, number.low, number.high,
                     number.values, published[0] if published else None, f"{number.mean:.1f}")
        )  # fmt: skip
    told = "; ".join(
        f"{r.label} {r.mean:.1f}" + (f" ({r.low:.1f} to {r.high:.1f})" if r.low is not None else "")
        for r in rows
    )
    known = rows[0].low is not None
    parts = ["Dot: mean. Line: 95% interval."] if known else ["Dot: mean."]
    if any(len(r.values) > 1 for r in rows):
        parts.append("Strokes: single seeds.")
    if any(r.published is not None for r in rows):
        parts.append("Diamond: the paper's own number.")
    where = f" · {standing.group}" if standing.group else ""
    title = f"rsum on the {_split(material)} split"
    see = "The further right, the better"
    see += "; settings whose lines overlap may be equally good." if known and rows[1:] else "."
    svg = interval_chart(rows, title)
    figures = [Figure(f"rsum-{index}", title + where, svg, told, see, " ".join(parts))]
    if standing.against_baseline and standing.baseline is not None:
        figures.append(_difference_figure(material, standing, standing.baseline, index))
    return Figures(figures)


def _difference_figure(
    material: Material, standing: Standing, baseline: System, index: int
) -> Figure:
    rows = []
    for system in standing.order:
        gap = standing.against_baseline.get(system.label)
        if gap is not None:
            note = f"{signed(gap.difference)}, {printed_p(gap.corrected)}"
            colour = material.colour(system)
            rows.append(
                Interval(system.short, colour, gap.difference, gap.low, gap.high, note=note)
            )
    title = f"difference from {baseline.short}"
    told = "; ".join(f"{r.label} {r.note} ({r.low:+.1f} to {r.high:+.1f})" for r in rows)
    return Figure(
        f"difference-{index}",
        f"rsum: {title}",
        interval_chart(rows, title, zero=True),
        told,
        "A line that stays clear of the dashed zero is a difference that chance hardly explains.",
        "Line: 95% interval. p after Holm's correction for the number of comparisons.",
    )
