"""What an objective does to a triplet: as numbers, and drawn."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.analysis import triplet_field
from simgrad.analysis.diagrams import read_triplets
from simgrad.core.devices import widened
from simgrad.core.errors import InputError
from simgrad.lab import schemas
from simgrad.objectives import Objective, objective
from simgrad.pages.blocks import Figure
from simgrad.pages.fields import Array, Phase, field_chart, training_phases
from simgrad.runs.run import Run

_RESOLUTION = 49
_HUGE = 1e12  # sliders end far below
_MOST_TRIPLETS = 400
_KINDS = {"push": "push of the negative", "pull": "pull of the positive"}


def rows_of(matrix: Tensor) -> list[list[float]]:
    """Five significant digits are more than a picture shows."""
    clean = torch.nan_to_num(widened(matrix), 0.0, _HUGE, -_HUGE)
    return [[float(f"{value:.5g}") for value in row] for row in clean.tolist()]


def field_of(rule: Objective, low: float, high: float) -> schemas.Field2D:
    """Pull and push over the similarities of positive and negative."""
    field = triplet_field(rule, _RESOLUTION, low=low, high=high)
    pull, push = (rows_of(torch.from_numpy(grid)) for grid in (field.pull, field.push))
    return schemas.Field2D(low=low, high=high, pull=pull, push=push)


def drawn(field: schemas.Field2D, phases: list[Phase]) -> dict[str, str]:
    """push and pull as SVG."""
    grids = {"push": field.push, "pull": field.pull}
    return {
        kind: field_chart(np.asarray(grids[kind]), (field.low, field.high), what, phases, "")
        for kind, what in _KINDS.items()
    }


def values(run: Run) -> schemas.DiagramResult:
    """A run's objective, and the triplets it met."""
    rule, phases, low = _of_run(run)
    return schemas.DiagramResult(
        objective=str(rule),
        field=field_of(rule, low, 1.0),
        phases={
            phase: [(round(a, 4), round(b, 4)) for a, b in points[:_MOST_TRIPLETS].tolist()]
            for phase, points in phases.items()
        },
    )


def figure(run: Run, name: str, title: str, source: str) -> Figure:
    """The same as a drawing; a page's script gets the values from `source`."""
    rule, phases, low = _of_run(run)
    field = triplet_field(rule, _RESOLUTION, low=low, high=1.0)
    grid = np.nan_to_num(field.push, nan=0.0, posinf=_HUGE, neginf=-_HUGE)
    svg = field_chart(grid, (low, 1.0), title, training_phases(phases), source=source)
    told = f"how hard {rule} pushes the negative of a triplet, over both similarities"
    return Figure(name, title, svg, told)


def _of_run(run: Run) -> tuple[Objective, dict[str, Array], float]:
    """Objective, triplets by phase, and the least similarity that a diagram needs."""
    try:
        phases: dict[str, Any] = read_triplets(run.path)
    except InputError:
        phases = {}  # not far enough to have any
    least = min((float(points.min()) for points in phases.values()), default=0.0)
    low = math.floor(min(0.0, least) * 5) / 5
    return objective(run.recipe.objective), phases, max(-1.0, low)
