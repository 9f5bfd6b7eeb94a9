"""COCOS: what contributes to the gradient at each system's best checkpoint, on a few batches."""

from simgrad.analysis.count_labels import COUNT_LABELS
from simgrad.core.errors import InputError
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.pages.blocks import Block, BodyRow, Cell, Column, Details, Paragraph, Section, Table
from simgrad.pages.glossary import explained
from simgrad.report.material import Material, System
from simgrad.retriever.counting import count_run
from simgrad.retriever.opening import open_folder

_Figures = dict[str, tuple[float, float]]  # mean, standard deviation over batches


def cocos(material: Material, batches: int = 4, device: str = "auto") -> Section | None:
    """Counts of one run of each system: the general ones, and the paper's where it has any."""
    found: list[tuple[System, dict[str, _Figures]]] = []
    problems = []
    for system in material.systems:
        run = system.with_checkpoint
        if run is None:
            continue
        try:
            counts = count_run(open_folder(run, device=device), batches=batches)
            found.append((system, counts.corrected.summary()))
        except InputError as error:
            problems.append(Paragraph([f"{system.label}: not counted ({error})"], "note"))
    if not found and not problems:
        return None
    words = (
        "The same question at the best checkpoint: how many {negatives} of a query really take "
        "part in the {push}, and are they the right ones to push away?"
    )
    blocks: list[Block] = [Paragraph(explained(words))]
    if found:
        blocks.append(_table(material, found, batches))
        own = [_paper(material, system, summary) for system, summary in found]
        rows = [row for row in own if row is not None]
        if rows:
            title = "Counted as Bleeker & de Rijke (ECIR 2022) count"
            blocks.append(Details(title, [_paper_table(rows)]))
    title = "Which negatives count in the end"
    return Section("cocos", title, "Counts", [*blocks, *problems])


def _table(
    material: Material, found: list[tuple[System, dict[str, _Figures]]], batches: int
) -> Table:
    shown = [n for n in COUNT_LABELS if any(n in s[way] for _, s in found for way in DIRECTIONS)]
    rows = []
    for direction, way in DIRECTIONS.items():
        rows.append(BodyRow([Cell(way)], "group"))
        for system, summary in found:
            name = Cell(system.label, key=True, colour=material.colour(system))
            rows.append(BodyRow([name, *(_cell(summary[direction], n) for n in shown)]))
    number = f"{batches} training batches" if batches > 1 else "one training batch"
    caption = f"Mean over {number} of the first seed; beneath: standard deviation."
    columns = [Column("", numeric=False)]
    columns += [Column(COUNT_LABELS[n].label, meaning=COUNT_LABELS[n].meaning) for n in shown]
    return Table("Negatives at the best checkpoint", columns, rows, caption)


def _cell(figures: _Figures, name: str) -> Cell:
    if name not in figures or figures[name][0] != figures[name][0]:
        return Cell("–")
    mean, deviation = map(COUNT_LABELS[name].printed, figures[name])
    return Cell(mean, f"± {deviation}")


def _paper(material: Material, system: System, summary: dict[str, _Figures]) -> BodyRow | None:
    """The paper's own counts as one line of text for each direction."""
    cells = [Cell(system.label, key=True, colour=material.colour(system))]
    for direction in DIRECTIONS:
        own = {k: v for k, v in summary[direction].items() if k not in COUNT_LABELS}
        if not own:
            return None
        texts = [f"{k} {_short(mean)} ± {_short(std)}" for k, (mean, std) in own.items()]
        cells.append(Cell(", ".join(texts)))
    return BodyRow(cells)


def _short(value: float) -> str:
    """Four figures, never with an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if value > 1e-4 else "0"


def _paper_table(rows: list[BodyRow]) -> Table:
    return Table(
        "The paper's counts",
        [Column("", numeric=False), *(Column(way, numeric=False) for way in DIRECTIONS.values())],
        rows,
        "C_q: items that contribute to a query's gradient; C_B: to that of a batch; C_0: queries "
        "without gradient; W: weights, of positives (pos) and negatives (neg).",
    )
