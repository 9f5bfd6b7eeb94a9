"""What an objective has learned beside a model: its temperature, or its scale and bias."""

from pathlib import Path

import torch

from simgrad.core.errors import InputError
from simgrad.models import Loaded
from simgrad.models.base import Scale
from simgrad.objectives import Objective, objective
from simgrad.runs.recipe import Recipe


def learned_objective(recipe: Recipe, loaded: Loaded, where: Path) -> Objective:
    """A run's objective with what it had learned when its best weights were kept."""
    made = objective(recipe.objective)
    learned = loaded.extra.get("objective") or {}
    try:
        made.load_state_dict({k: torch.tensor(v) for k, v in learned.items()})
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{where}: what it learned beside the model is not of its recipe's "
            f"objective, {made} ({str(error).splitlines()[-1].strip()[:100]})."
        ) from None
    return made


def learned_scale(recipe: Recipe, loaded: Loaded, where: Path) -> Scale | None:
    """The scale and bias that it learned; None: it learns none."""
    if not loaded.extra.get("objective"):
        return None
    scale, bias = learned_objective(recipe, loaded, where).affine()
    if scale is None:
        return None
    return Scale(scale.item(), 0.0 if bias is None else bias.item())
