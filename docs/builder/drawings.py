"""Drawings of the objectives' pages, from their own weights."""

import numpy as np
import torch

from simgrad.analysis import triplet_field
from simgrad.analysis.situations import weigh_situations
from simgrad.objectives import objective
from simgrad.pages.charts import Curve, line_chart
from simgrad.pages.fields import field_chart
from simgrad.pages.svg import described

POSITIVE, OTHER, MINED = 0.5, 0.4, 0.45  # similarities that stay where they are


MOVING = torch.linspace(0, 1, 161, dtype=torch.float64)


def weights(spec: str) -> torch.Tensor:
    """(161, 3): of the positive, of the negative that moves, of the other one."""
    fixed = [torch.full_like(MOVING, value) for value in (POSITIVE, OTHER)]
    similarities = torch.stack([fixed[0], MOVING, fixed[1]], 1)
    return weigh_situations(objective(spec), similarities, outside=MINED).weights


def over_negative(spec: str) -> str:
    """Pull and push of a query while one of its two negatives moves from 0 to 1."""
    found = weights(spec)

    def curve(label: str, colour: int, values: torch.Tensor) -> Curve:
        points = list(zip(MOVING.tolist(), (values + 0.0).tolist(), strict=True))
        return Curve(label, colour, [], points)

    curves = [
        curve("pull", 0, -found[:, 0]),
        curve("push", 1, found[:, 1]),
        curve("other", 3, found[:, 2]),
    ]
    chart = line_chart(curves, "weight", "similarity of the negative")
    about = (
        f"The positive is at {POSITIVE:g}, the other negative at {OTHER:g}. Pull of the positive, "
        "push of the negative that moves, and push of the other one."
    )
    return described(chart, "over-negative", f"{spec}: weights while a negative moves", about)


def field(spec: str) -> str:
    """How hard the positive is pulled, over the similarities of the positive and the negative."""
    found = triplet_field(spec, 96, outside=MINED)
    pull = np.asarray(found.pull, dtype=float)
    chart = field_chart(pull, (0.0, 1.0), "how hard the positive is pulled")
    about = (
        "One positive and one negative. Across: similarity of the positive; upwards: of the "
        f"negative. Dark: pulled hard. From {pull.min():.3g} to {pull.max():.3g}."
    )
    return described(chart, "field", f"{spec}: weight of a triplet", about)
