"""What objectives do: which negatives count at the best checkpoint, and triplet diagrams."""

import math

import numpy as np

from simgrad.analysis import triplet_field
from simgrad.analysis.count_labels import COUNT_LABELS
from simgrad.analysis.diagrams import read_triplets
from simgrad.core.errors import InputError
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
from simgrad.pages.fields import Array, field_chart, training_phases
from simgrad.pages.glossary import explained
from simgrad.report.material import Material, System
from simgrad.retriever.counting import count_run
from simgrad.retriever.opening import open_folder
from simgrad.runs.run import TRIPLETS

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


_MOST_SYSTEMS = 16
_GRID = 98  # no round steps, so that no point falls exactly on an edge such as a margin of 0.2
_WORDS = (
    "How hard does an objective work on a {triplet}? Below the dashed line the right answer is the "
    "more similar one, as it should be. Small dots are real triplets of the run with their hardest "
    "negative; large dots are the median early, in the middle and late in training. Dots that rest "
    "where there is no colour have nothing left to learn from."
)
_SEE = "Full colour: the objective pushes such a triplet hard. No colour: it does nothing to it."


def diagrams(material: Material) -> Section | None:
    """One diagram for each system; two where a pull and a push differ."""
    figures: list[Figure] = []
    problems = []
    for index, system in enumerate(material.systems[:_MOST_SYSTEMS]):
        if system.recipe is None:
            continue
        try:
            figures += _of_system(system, index)
        except InputError as error:
            problems.append(Paragraph([f"{system.label}: {error}"], "note"))
    if not figures and not problems:
        return None
    more = len(material.systems) - _MOST_SYSTEMS
    if more > 0:
        problems.append(Paragraph([f"{more} more settings are not drawn."], "note"))
    blocks: list[Block] = [Paragraph(explained(_WORDS)), Figures(figures), *problems]
    return Section("triplets", "What the objective does to a triplet", "Triplets", blocks)


def _of_system(system: System, index: int) -> list[Figure]:
    assert system.recipe is not None
    phases = real_triplets(system)
    lowest = min((float(points.min()) for points in phases.values()), default=0.0)
    low = math.floor(min(0.0, lowest) * 5) / 5
    field = triplet_field(system.recipe.objective, _GRID, low=low, high=1.0)
    parts = [("weight", field.pull)]
    if not field.balanced:
        parts = [("pull of the positive", field.pull), ("push of the negative", field.push)]
    drawn = training_phases(phases)
    figures = []
    for number, (what, weights) in enumerate(parts):
        title = f"{system.label}: {what}"
        svg = field_chart(np.asarray(weights, dtype=float), (low, 1.0), title, drawn)
        name = f"triplets-{index}-{number}"
        figures.append(Figure(name, title, svg, _told(title, phases), _SEE))
    return figures


def real_triplets(system: System) -> dict[str, Array]:
    """(s+, s-) of each phase of the first run that kept any."""
    run = next((r for r in system.runs if (r.path / TRIPLETS).is_file()), None)
    return {} if run is None else read_triplets(run.path)


def _told(title: str, phases: dict[str, Array]) -> str:
    middles = [
        f"{name}: positive {np.median(p[:, 0]):.2f}, hardest negative {np.median(p[:, 1]):.2f}"
        for name, p in phases.items()
    ]
    told = "; ".join(middles) if middles else "no triplets were recorded"
    return f"{title} over the similarities of positive and negative. Median triplets: {told}."
