"""What each replicate of a study found, and how much search, seed and images differ."""

from collections.abc import Sequence
from statistics import fmean

from simgrad.evaluation.crossed import Components, components
from simgrad.pages.blocks import Block, BodyRow, Cell, Column, Paragraph, Section, Table
from simgrad.report.material import Material, System
from simgrad.report.standings import GroupStanding
from simgrad.runs.outcome import score_at_end
from simgrad.runs.run import Run
from simgrad.studies.space import SEEDS_APART

_WORDS = (
    "Each replicate searched the settings anew{where}, and tested what it chose. A line is a "
    "replicate: rsum on the test split, mean over its seeds; the best of each line is bold."
)
_CAPTION = (
    "Standard deviations of one run's rsum that are due to each cause. What a seed does differently"
    " on each image counts with the seed."
)


def replicates(material: Material, found: list[GroupStanding]) -> Section | None:
    """A line for each replicate, then the table of variances; None where nothing was repeated, or
    nothing was tested."""
    blocks: list[Block] = []
    if material.split != "test":
        return None
    for standing in found:
        systems = [s for s in standing.order if len(s.replicates) > 1]
        if not systems:
            continue
        if not blocks:
            where = ", on a split of its own" if standing.new_images else ""
            blocks.append(Paragraph([_WORDS.format(where=where)]))
        title = f"By replicate, {standing.group}" if standing.group else "By replicate"
        blocks.append(_by_replicate(systems, title))
        spreads = {s.label: _spread(standing, s) for s in systems}
        blocks.append(_variances(material, systems, spreads, standing.new_images))
    if not blocks:
        return None
    return Section("replicates", "What each replicate found", "Replicates", blocks)


def _by_replicate(systems: list[System], title: str) -> Table:
    draws = {s.label: {_number(draw): draw for draw in s.replicates} for s in systems}
    numbers = sorted({number for own in draws.values() for number in own})
    seeds = max(len(draw) for own in draws.values() for draw in own.values())
    rows = []
    for number in numbers:
        own = {label: draws[label].get(number, ()) for label in draws}
        means = {
            label: fmean(score_at_end(run, _rsum) or 0.0 for run in draw)
            for label, draw in own.items()
            if draw
        }
        cells = [Cell(str(number - numbers[0] + 1), key=True)]
        for label, draw in own.items():
            note = f"{len(draw)} of {seeds} seeds" if 0 < len(draw) < seeds else ""
            best = bool(draw) and means[label] == max(means.values())
            cells.append(Cell(f"{means[label]:.1f}" if draw else "–", note, strong=best))
        rows.append(BodyRow(cells))
    columns = [Column("replicate", numeric=False), *(Column(s.label) for s in systems)]
    return Table(title, columns, rows, "")


def _number(draw: Sequence[Run]) -> int:
    """Which replicate: the seeds of one are far from those of the next."""
    return draw[0].recipe.seed // SEEDS_APART


def _rsum(run: Run) -> float:
    return run.test.get("rsum", 0.0)


def _spread(standing: GroupStanding, system: System) -> Components | None:
    draws = standing.ranks.get(system.label, ())
    if len(draws) < 2 or not all(draws):
        return None
    return components(draws, new_images=standing.new_images)


def _variances(
    material: Material,
    systems: list[System],
    spreads: dict[str, Components | None],
    new_images: bool,
) -> Table:
    first = "split and search" if new_images else "search"
    columns = [Column("", numeric=False), Column(first), Column("seed"), Column("images")]
    rows = []
    for system in systems:
        found = spreads[system.label]
        name = Cell(system.label, key=True, colour=material.colour(system))
        parts = (None,) * 3 if found is None else (found.search, found.seed, found.images)
        rows.append(
            BodyRow([name, *(Cell("–" if part is None else f"{part:.1f}") for part in parts)])
        )
    return Table("How much differs", columns, rows, _CAPTION)
