"""From gradients to new weights: learning rates and what else changes with time, clipping, and the
scale of half precision.
"""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.models.base import RetrievalModel
from simgrad.objectives import Objective
from simgrad.runs.recipe import Recipe
from simgrad.training import distributed


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


class Optimizer:
    """Changes the weights of a model, and what objectives learn (temperatures and the like)."""

    def __init__(
        self, model: RetrievalModel, learned: nn.Module, recipe: Recipe, device: torch.device
    ) -> None:
        self.model, self.learned, self.recipe, self.device = model, learned, recipe, device
        self.inner = _optimizer(model, learned.parameters(), recipe, device)
        self.base_lr = [float(group["lr"]) for group in self.inner.param_groups]
        self.loss_factor = torch.ones((), device=device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")

    def set_rates(self, moment: Moment) -> None:
        """Rates of this moment; a captured step reads them from the device."""
        self.loss_factor.fill_(moment.loss_factor)
        for group, base in zip(self.inner.param_groups, self.base_lr, strict=True):
            rate = base * moment.lr_factor
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def clear(self) -> None:
        """Forget the gradients of the step before."""
        self.inner.zero_grad(set_to_none=True)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss as it is sent back: times the moment's factor, and half precision's."""
        return self.scaler.scale(loss * self.loss_factor)

    def update(self) -> None:
        """New weights; nothing here waits for the device."""
        # The sum first: all processes must find the same overflow, or some would step alone.
        distributed.add_gradients(self.model, self.learned)
        self.scaler.unscale_(self.inner)
        # What the objective learns (a temperature, a bias) is not clipped, and is left out of the
        # norm: it would shorten the model's step.
        if self.recipe.clip > 0:
            trained = [p for p in self.model.parameters() if p.grad is not None]
            nn.utils.clip_grad_norm_(trained, self.recipe.clip)
        self.scaler.step(self.inner)
        self.scaler.update()

    def autocast(self) -> AbstractContextManager[Any]:
        """Half precision for the encoders, where the recipe asks for it."""
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if self.recipe.precision not in kinds:
            return nullcontext()
        # Cached casts would tie one captured step to another.
        return torch.autocast(
            self.device.type, kinds[self.recipe.precision], cache_enabled=self.device.type != "cuda"
        )


def _optimizer(
    model: RetrievalModel, learned: Iterable[Tensor], recipe: Recipe, device: torch.device
) -> torch.optim.Optimizer:
    groups = model.parameter_groups(recipe.lr)
    own = [p for p in learned if p.requires_grad]
    if own:
        groups = [*groups, {"params": own, "lr": recipe.lr, "weight_decay": 0.0}]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    on_gpu = device.type == "cuda"
    for group in groups:
        # A step that is captured reads its rate from the device.
        rate = float(group.get("lr", recipe.lr))
        group["lr"] = torch.tensor(rate, device=device) if on_gpu else rate
    optimizer: torch.optim.Optimizer = kind(
        groups,
        lr=torch.tensor(recipe.lr, device=device) if on_gpu else recipe.lr,
        betas=recipe.betas,
        eps=recipe.epsilon,
        weight_decay=recipe.weight_decay,
        fused=True,
        capturable=on_gpu,
    )
    return optimizer


def start_scales(model: RetrievalModel, objectives: Iterable[Objective]) -> list[str]:
    """Let objectives that learn a scale begin at the model's own; what a person should know."""
    own = model.pretrained_scale()
    if own is None:
        return []
    told = []
    for objective in objectives:
        if objective.start_at(own.scale, own.bias):
            told.append(f"{objective} starts at the model's own scale, {own.scale:.4g}.")
            continue
        scale, _ = objective.affine()
        sees = "similarities as they are" if scale is None else f"{scale.item():.4g} times them"
        told.append(
            f"{objective} sees {sees}; the model was pretrained with {own.scale:.4g} times them."
        )
    return told
