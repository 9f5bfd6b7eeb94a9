"""What changes while training goes on: learning rate, loss scale, objective, what is frozen."""

import math
from dataclasses import dataclass

from simgrad.runs.recipe import Recipe


@dataclass(frozen=True)
class Moment:
    """What holds at one step."""

    lr_factor: float  # of each group's own learning rate
    loss_factor: float
    objective: str
    train_backbone: bool


def total_epochs(recipe: Recipe) -> int:
    """Both stages together."""
    return recipe.epochs + recipe.finetune_epochs


def part_of_run(recipe: Recipe, epoch: int) -> str:
    """Early, middle or late: diagrams show triplets of each."""
    return ("early", "middle", "late")[min(2, 3 * epoch // max(1, total_epochs(recipe)))]


def moment(recipe: Recipe, epoch: int, step_in_epoch: int, steps_per_epoch: int) -> Moment:
    """What holds at a step. The same whether the run was interrupted before or not."""
    finetuning = epoch >= recipe.epochs
    stage_epoch = epoch - recipe.epochs if finetuning else epoch
    stage_epochs = recipe.finetune_epochs if finetuning else recipe.epochs
    step = stage_epoch * steps_per_epoch + step_in_epoch
    steps = max(1, stage_epochs * steps_per_epoch)
    rising = recipe.warmup * steps
    risen = min(1.0, (step + 1) / rising) if rising else 1.0  # the first step moves, too
    if recipe.decay == "step":
        factor = risen * 0.1 ** (stage_epoch // recipe.decay_every)
    elif step < rising:
        factor = risen
    else:
        factor = (steps - step) / max(1.0, steps - rising)
        if recipe.decay == "cosine":
            factor = (1 - math.cos(math.pi * factor)) / 2
    if finetuning:
        factor *= recipe.finetune_lr / recipe.lr if recipe.lr else 0.0
    first = recipe.first_objective is not None and epoch < recipe.first_epochs
    thawing = recipe.freeze_epochs > 0 and epoch == recipe.freeze_epochs
    return Moment(
        lr_factor=factor,
        loss_factor=step_in_epoch / max(1, steps_per_epoch) if thawing else 1.0,
        objective=recipe.first_objective or "" if first else recipe.objective,
        train_backbone=epoch >= recipe.freeze_epochs if not recipe.finetune_epochs else finetuning,
    )
