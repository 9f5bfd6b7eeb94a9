"""Triplet diagrams: how an objective weighs a triplet, and where the real triplets lay."""

import math

import numpy as np

from simgrad.analysis import triplet_field
from simgrad.analysis.diagrams import read_triplets
from simgrad.core.errors import InputError
from simgrad.pages.blocks import Block, Figure, Figures, Paragraph, Section
from simgrad.pages.fields import Array, field_chart, training_phases
from simgrad.pages.glossary import explained
from simgrad.report.material import Material, System
from simgrad.runs.run import TRIPLETS

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
