"""The headline: which objective won, by how much, and how sure that is."""

import re
from collections.abc import Sequence
from typing import Literal

from simgrad.evaluation import metric_of, wording
from simgrad.evaluation.decision import decision
from simgrad.evaluation.distributions import share_bound
from simgrad.evaluation.standing import Score, Standing
from simgrad.pages.blocks import (
    Block,
    BodyRow,
    Callout,
    Cell,
    Column,
    Figure,
    Figures,
    Inline,
    Key,
    Paragraph,
    Strong,
    Table,
    Term,
    Words,
)
from simgrad.pages.charts import Interval, interval_chart
from simgrad.pages.glossary import explain
from simgrad.report.material import Material, System
from simgrad.report.standings import GroupStanding, printed_p, signed

_MOST_MISSING = 12
_RSUM = Term("rsum", metric_of("rsum").description)
_FLATTERING = (
    "No run has test numbers yet. The best moment of each run was chosen on the numbers shown "
    "here, so they look better than they are."
)
_UNSURE = ". How sure that is cannot be told without ranks on the same test queries."


def headline(material: Material, found: list[GroupStanding]) -> list[Block]:
    """What opens the report."""
    blocks: list[Block] = []
    if not material.compared:
        first, *rest = material.answer
        blocks += [Paragraph([first], "lead"), *(Paragraph([line]) for line in rest)]
    if not material.split:
        blocks.append(Paragraph(["No run has been evaluated yet."], "lead"))
    for standing in found:
        if standing.order:
            start: list[Inline] = []
            if len(found) > 1 and standing.group:
                start = [f"{standing.group}: "]
            if standing.standing is not None and wording.failures(standing.standing):
                blocks.append(Callout("What failed", wording.failures(standing.standing)))
            blocks.append(Paragraph([*start, *_sentence(material, standing)], "lead"))
            blocks += _beside(material, standing)
    if material.answer and material.compared:
        blocks.append(_answer(material.answer, found))
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


def _answer(lines: Sequence[str], found: list[GroupStanding]) -> Callout:
    """What was answered, without what stands above it already."""
    above = {
        line
        for one in found
        if one.standing
        for line in (wording.lead(one.standing), wording.basis(one.standing))
    }
    more = [line for line in lines if line not in above]
    also = "also " if len(more) < len(lines) else ""
    return Callout(f"What simgrad choose {also}answered", more)


def _missing(lines: list[str]) -> Callout:
    title = f"{len(lines)} parts of this are missing or unfinished"
    if len(lines) == 1:
        title = "One part of this is missing or unfinished"
    more = len(lines) - _MOST_MISSING
    return Callout(title, [*lines[:_MOST_MISSING], *([f"and {more} more."] if more > 0 else [])])


def _sentence(material: Material, standing: GroupStanding) -> Words:
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
    if standing.standing is not None:
        return _coloured(wording.lead(standing.standing), [*map(key, standing.systems)])
    ends = [one for ended in standing.outcomes.values() for one in ended]
    if standing.short or (ends and "trained" not in ends):
        why = "Too short a training" if standing.short else "No run trained, so it is too early"
        said = f". {why} to say who leads. "
        return [key(best), " has the highest mean, ", *figure, said]
    second = standing.order[1]
    lead = f"{number.mean - standing.numbers[second.label]['rsum'].mean:.1f}"
    return [key(best), " leads with ", *figure, f", {lead} above ", key(second), _UNSURE]


def _coloured(text: str, keys: Sequence[Key]) -> Words:
    """A sentence in which the names of systems have their colours."""
    by_name = {key.text: key for key in keys}
    names = sorted(map(re.escape, by_name), key=len, reverse=True)
    pieces = re.split(rf"(?<![\w-])({'|'.join(names)})(?![\w-])", text)
    return [by_name.get(piece, piece) for piece in pieces if piece]


def _beside(material: Material, standing: GroupStanding) -> list[Block]:
    """What failed, before who leads; and afterwards what the words mean and what would decide."""
    found = standing.standing
    if found is None:
        return []
    lines = [wording.basis(found)]
    if any(system.tuned for system in standing.systems) and not found.replicates:
        lines.append("How much another search of settings would change is not counted.")
    lines.append(wording.outlook(found, decision(found)))
    return [
        Paragraph([" ".join(line for line in lines if line)]),
        _standing_table(material, standing, found),
    ]


def _standing_table(material: Material, group: GroupStanding, found: Standing) -> Table:
    """Beside the leader: the gap, its word, and how single runs compare."""
    failures = any(one.failures for one in found.scores.values())
    columns = [
        Column("", numeric=False),
        Column("rsum", meaning="mean over all test runs; failed ones count"),
        Column("verdict", numeric=False),
        Column("behind the leader", meaning="with an interval that holds for all rows together"),
        *([Column("failed", meaning=explain("failed").meaning)] if failures else []),
        Column("worst seed"),
        Column("P(leader beats it)", meaning="one run of the leader against one run of this"),
    ]
    rivals = {one.label: one for one in found.rivals}
    systems = {system.label: system for system in group.systems}
    rows = []
    for label in sorted(found.scores, key=lambda label: -found.scores[label].mean):
        score, rival = found.scores[label], rivals.get(label)
        word = "leader" if label == found.leader else "failed" if score.failed else "not compared"
        gap, beaten = Cell("–"), "–"
        if found.short:
            word = word if score.failed else "too short"
        elif rival is not None:
            note = f"{rival.low:.1f} to {rival.high:.1f}\n{printed_p(rival.p)}".replace("-", "−")
            word, gap, beaten = rival.word, Cell(f"{rival.behind:.1f}", note), f"{rival.beaten:.2f}"
        of = score.of_trained
        trained = f"{of:.1f} of those that trained" if of is not None and score.failures else ""
        cells = [Cell(label, key=True, colour=material.colour(systems[label]))]
        tone: Literal["good", "bad", "plain"] = "bad" if score.failed else "plain"
        if label == found.leader and not found.short:
            tone = "good"
        cells += [Cell(f"{score.mean:.1f}", trained), Cell(word, badge=tone), gap]
        if failures:
            bound = "" if score.failed else f"up to {_may_fail(score)} may"
            ends = ", ".join(sorted({one for one in score.outcomes if one != "trained"}))
            beneath = "\n".join(line for line in (ends, bound) if line)
            told = f"{score.failures} of {len(score.runs)}"
            cells.append(Cell(told, beneath, badge="bad" if score.failures else ""))
        cells += [Cell(f"{score.worst:.1f}"), Cell(beaten)]
        rows.append(BodyRow(cells))
    fewest = min(found.scores.values(), key=lambda one: len(one.runs))
    count = len(fewest.runs)
    several = f"{count} seeds" if count > 1 else "One seed"
    told = (
        f"No run failed. {several} cannot rule out that up to {_may_fail(fewest)} of others would."
    )
    return Table("Standing", columns, rows, "" if failures else told)


def _may_fail(score: Score) -> str:
    """The share of runs that may fail, if so many of so few did."""
    return f"{100 * share_bound(score.failures, len(score.runs)):.0f}%"


def _seeds(system: System) -> str:
    count = len(system.tested or system.histories)
    return f", over {count} seeds" if count > 1 else ", with one seed"


def _split(material: Material) -> str:
    return "test" if material.split == "test" else "validation"


def _figures(material: Material, standing: GroupStanding, index: int) -> Figures:
    rows = []
    for system in standing.order:
        number = standing.numbers[system.label]["rsum"]
        # A number of another test has no place on this scale.
        published = None if system.unlike else system.published.get("rsum")
        rows.append(
            Interval(system.label, material.colour(system), number.mean, number.low, number.high,
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
    material: Material, standing: GroupStanding, baseline: System, index: int
) -> Figure:
    rows = []
    for system in standing.order:
        gap = standing.against_baseline.get(system.label)
        if gap is not None:
            note = f"{signed(gap.difference)}, {printed_p(gap.corrected)}"
            colour = material.colour(system)
            rows.append(
                Interval(system.label, colour, gap.difference, gap.low, gap.high, note=note)
            )
    title = f"difference from {baseline.label}"
    told = "; ".join(f"{r.label} {r.note} ({r.low:+.1f} to {r.high:+.1f})" for r in rows)
    return Figure(
        f"difference-{index}",
        f"rsum: {title}",
        interval_chart(rows, title, zero=True),
        told,
        "A line that stays clear of the dashed zero is a difference that chance hardly explains.",
        "Lines: 95% intervals, which hold for all of them together, as p does.",
    )
