"""The weights of several models as parts of common tensors, and Adam for all of them at once.

Each model keeps its own rate, clipping, weight decay and count of steps; its parameters and its
optimiser's state are views, so whoever works on one model sees nothing new.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from simgrad.core.devices import widest
from simgrad.core.gpu import capable, installed, kernels
from simgrad.data.batches import Batch
from simgrad.models.base import RetrievalModel
from simgrad.models.networks.many import Gradient
from simgrad.objectives import Objective
from simgrad.runs.recipe import Recipe
from simgrad.training.optimizing import Optimizer

_BLOCK = 2048  # numbers that a program of the kernel works on


def trained(model: RetrievalModel) -> list[tuple[str, nn.Parameter]]:
    """A model's parameters that change, by name."""
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


class Learner(Protocol):
    """What runs that train together need of each: the `Step` of `training/loop.py`."""

    model: RetrievalModel
    recipe: Recipe
    device: torch.device
    objectives: dict[str, Objective]
    learned: nn.ModuleList
    optimizer: Optimizer

    def update(self, batch: Batch, objective: Objective) -> Tensor:
        """One update by itself."""


class Stack:
    """Places for so many models like this one."""

    def __init__(self, like: Learner, places: int, fused: bool | None = None) -> None:
        device, wide = like.device, widest(like.device)
        self.weights = {name: p.new_zeros(places, *p.shape) for name, p in trained(like.model)}
        self.means = {name: torch.zeros_like(p) for name, p in self.weights.items()}
        self.squares = {name: torch.zeros_like(p) for name, p in self.weights.items()}
        # Adam counts steps for each parameter.
        self.counts = torch.zeros(len(self.weights), places, device=device)
        self.rates = torch.zeros(
            places, device=device, dtype=wide if device.type == "cpu" else torch.float32
        )
        self.settings = torch.ones(6, places, device=device, dtype=wide)
        on_gpu = device.type == "cuda"
        self.fused = on_gpu and installed() and capable(device) if fused is None else fused

    @torch.no_grad()
    def bind(self, place: int, step: Learner) -> None:
        """Let a model's weights and its optimiser's state be those of a place."""
        recipe, optimizer = step.recipe, step.optimizer.inner
        decay = [recipe.weight_decay, 0.0]
        l2, decoupled = decay if recipe.optimizer == "adam" else decay[::-1]
        values = [*recipe.betas, recipe.epsilon, recipe.clip, l2, decoupled]
        self.settings[:, place] = self.settings.new_tensor(values)
        for number, (name, p) in enumerate(trained(step.model)):
            state, own = optimizer.state[p], self.weights[name][place]
            places = {
                "step": self.counts[number, place],
                "exp_avg": self.means[name][place],
                "exp_avg_sq": self.squares[name][place],
            }
            for key, mine in places.items():
                mine.copy_(state[key]) if key in state else mine.zero_()
            optimizer.state[p] = places
            own.copy_(p)
            p.data = own
        group = optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            self.rates[place].copy_(group["lr"])
            group["lr"] = self.rates[place]

    @torch.no_grad()
    def release(self, step: Learner) -> None:
        """Give a model its own memory again."""
        optimizer = step.optimizer.inner
        for _, p in trained(step.model):
            p.data = p.data.clone()
            optimizer.state[p] = {k: v.clone() for k, v in optimizer.state[p].items()}
        group = optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].clone()

    def set_rate(self, place: int, step: Learner) -> None:
        """On a CPU rates are plain numbers; elsewhere the optimiser's own is the place's."""
        rate = step.optimizer.inner.param_groups[0]["lr"]
        if not isinstance(rate, Tensor):
            self.rates[place] = rate

    @torch.no_grad()
    def update(self, gradients: dict[str, Gradient]) -> None:
        """New weights for all models: clip, then what torch.optim's Adam and AdamW do."""
        self.counts += 1
        beta1, beta2, epsilon, clip, l2, decay = self.settings
        count, rate = self.counts[0].to(beta1), self.rates.to(beta1)
        norm = _norm(gradients)
        clipped = torch.where(clip > 0, (clip / (norm + 1e-6)).clamp(max=1.0), 1.0)
        values = torch.stack([
            rate / (1 - beta1**count), (1 - beta2**count).sqrt(), beta1, beta2, epsilon, l2,
            1 - rate * decay,
        ])  # fmt: skip
        for name, (gradient, size) in gradients.items():
            factor = clipped if size is None else clipped * size
            adam = adam_by_kernel if self.fused else adam_plain
            adam(self.weights[name], gradient, self.means[name], self.squares[name], factor, values)


def _norm(gradients: dict[str, Gradient]) -> Tensor:
    """(models,) of all parameters together."""
    norms = []
    for value, size in gradients.values():
        wide = torch.float64 if value.dtype == torch.float64 else torch.float32
        norm = torch.linalg.vector_norm(value.flatten(1), dim=1, dtype=wide)
        norms.append(norm if size is None else norm * size)
    whole: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return whole


def adam_plain(
    weights: Tensor,  # (models, ...)
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    factor: Tensor,  # (models,) of the gradient
    values: Tensor,  # (7, models) see `update`
) -> None:
    shape = (-1, *(1 for _ in weights.shape[1:]))
    rate, root, beta1, beta2, epsilon, l2, kept = (v.to(weights).view(shape) for v in values)
    g = torch.addcmul(gradient.to(weights) * factor.to(weights).view(shape), weights, l2)
    mean.lerp_(g, 1 - beta1)
    square.mul_(beta2).addcmul_(g * (1 - beta2), g)
    weights.mul_(kept).sub_(rate * mean / (square.sqrt() / root + epsilon))


def adam_by_kernel(
    weights: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, factor: Tensor, values: Tensor
) -> None:
    count = weights[0].numel()
    kernels("simgrad.training.adam_kernel").adam[-(-count // _BLOCK), len(weights)](
        weights, gradient.contiguous(), mean, square, factor.float(), values.float(),
        count, len(weights), BLOCK=_BLOCK,
    )  # fmt: skip
