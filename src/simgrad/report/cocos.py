"""COCOS: what contributes to the gradient at each system's best checkpoint, on a few batches."""

from simgrad.core.errors import InputError
from simgrad.report.blocks import Block, Cell, Column, Details, Paragraph, Row, Section, Table
from simgrad.report.material import Material, System
from simgrad.report.training import share_or_count
from simgrad.runs.counting import count_run
from simgrad.runs.run import BEST

_DIRECTIONS = {"i2t": "image → text", "t2i": "text → image"}
_GENERAL = {
    "contributing": "contributing negatives",
    "effective": "effective number",
    "hardest_share": "push on the hardest",
    "zero_share": "queries without gradient",
    "faint_share": "with a faint gradient",
    "false_share": "push on false negatives",
}
_Figures = dict[str, tuple[float, float]]  # mean, standard deviation over batches
_WORDS = (
    "Counting contributing samples: how many negatives of a query really shape the gradient, and "
    "whether they are the right ones to push away."
)


def cocos(material: Material, batches: int = 4, device: str = "auto") -> Section | None:
    """Counts of one run of each system: the general ones, and the paper's where it has any."""
    found: list[tuple[System, dict[str, _Figures]]] = []
    problems = []
    for system in material.systems:
        run = next((r for r in (*system.finished, *system.runs) if (r.path / BEST).is_dir()), None)
        if run is None:
            continue
        try:
            counts = count_run(run, batches=batches, device=device)
            found.append((system, counts.corrected.summary()))
        except InputError as error:
            problems.append(Paragraph([f"{system.label}: not counted ({error})"], "note"))
    if not found and not problems:
        return None
    blocks: list[Block] = [Paragraph([_WORDS])]
    if found:
        blocks.append(_table(material, found, batches))
        own = [_paper(material, system, summary) for system, summary in found]
        rows = [row for row in own if row is not None]
        if rows:
            blocks.append(Details("As the paper counts", [_paper_table(rows)]))
    return Section("cocos", "What contributes to the gradient", "Gradient", [*blocks, *problems])


def _table(
    material: Material, found: list[tuple[System, dict[str, _Figures]]], batches: int
) -> Table:
    shown = [n for n in _GENERAL if any(n in s[d] for _, s in found for d in _DIRECTIONS)]
    rows = []
    for direction, way in _DIRECTIONS.items():
        rows.append(Row([Cell(way)], "group"))
        for system, summary in found:
            name = Cell(system.label, key=True, colour=material.colour(system))
            rows.append(Row([name, *(_cell(summary[direction], n) for n in shown)]))
    number = f"{batches} training batches" if batches > 1 else "one training batch"
    caption = (
        f"Mean over {number} at the best checkpoint of the first seed; beneath: deviation. "
        "Contributing: pushed with more than 1% of the query's largest push. Faint: less than 1% "
        "of the batch's mean gradient."
    )
    columns = [Column("", numeric=False), *(Column(_GENERAL[n]) for n in shown)]
    return Table("What contributes to the gradient", columns, rows, caption)


def _cell(figures: _Figures, name: str) -> Cell:
    if name not in figures or figures[name][0] != figures[name][0]:
        return Cell("–")
    mean, deviation = figures[name]
    return Cell(share_or_count(name, mean), f"± {share_or_count(name, deviation)}")


def _paper(material: Material, system: System, summary: dict[str, _Figures]) -> Row | None:
    """The paper's own counts as one line of text for each direction."""
    cells = [Cell(system.label, key=True, colour=material.colour(system))]
    for direction in _DIRECTIONS:
        own = {k: v for k, v in summary[direction].items() if k not in _GENERAL}
        if not own:
            return None
        texts = [f"{k} {mean:.4g} ± {std:.2g}" for k, (mean, std) in own.items()]
        cells.append(Cell(", ".join(texts)))
    return Row(cells)


def _paper_table(rows: list[Row]) -> Table:
    return Table(
        "The paper's counts",
        [Column("", numeric=False), *(Column(way, numeric=False) for way in _DIRECTIONS.values())],
        rows,
        "C: counts per query (q), per batch (B) and of queries without gradient (0); W: weights.",
    )
