"""How long are the gradients that a clip meets? python results/scenes/gradients.py

The demo's model in its first epoch, losses as means over queries, lr 5e-3, clip 2.
"""

import tempfile

import numpy as np
from torch import nn

from simgrad.runs.recipe import Recipe
from simgrad.training.rounds import train

OBJECTIVES = (
    "triplet-sh", "goal(triplet=con, pair=sig)", "goal(triplet=cir, pair=sig-ms)", "nt-xent",
    "triplet",
)  # fmt: skip
RECIPE = Recipe(
    data="scenes(features=global)", model="vse++(dimension=128, word_dimension=64)", epochs=1,
    lr=5e-3, clip=2.0, reduction="mean", threads=1, trial=True, device="cpu",
)  # fmt: skip

norms: list[float] = []
clip = nn.utils.clip_grad_norm_


def noted(*given, **named):  # type: ignore[no-untyped-def]
    norms.append(float(norm := clip(*given, **named)))
    return norm


nn.utils.clip_grad_norm_ = noted
for objective in OBJECTIVES:
    norms.clear()
    with tempfile.TemporaryDirectory() as folder:
        train(RECIPE.replace(objective=objective), f"{folder}/run", quiet=True)
    low, half, high = np.quantile(norms, [0, 0.5, 1])
    above = np.mean(np.array(norms) > RECIPE.clip)
    print(
        f"{objective}: first {norms[0]:.2f}, {low:.3f} to {high:.2f}, half below {half:.3f}; "
        f"{above:.0%} above {RECIPE.clip:g}",
        flush=True,
    )
