"""Trouble, named while it happens, with what is known to cure it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe


class TrainingError(InputError):
    """Training cannot go on."""


CURES = (
    "Known cures: start with `first_objective: triplet` for an epoch, a lower learning rate, a "
    "larger batch, precomputed features before fine-tuning, or an objective that weighs more than "
    "the hardest negative (nt-xent, goal)."
)
FLAT = (
    "is no better than that of a model that finds everything equally similar: hardest-negative "
    "training is about to collapse, or has not got away from there yet."
)
COLLAPSE = (
    "all similarities are (nearly) equal: training has collapsed to one point, as hardest-negative "
    f"training can. {CURES}"
)


@dataclass
class Watch:
    """Looks at every evaluation; says each thing once."""

    said: set[str] = field(default_factory=set)
    falling: int = 0
    best: float = -1.0
    lowest_loss: float = float("inf")

    def look(
        self, entry: dict[str, Any], spread: float, score: float, flat: float = 0.0
    ) -> list[str]:
        """Warnings for one evaluation.

        `spread`: standard deviation of validation similarities; `flat`: the loss if all were equal,
        2 x batch x margin for hardest-negative training.
        """
        warnings = []
        if flat > 0 and entry["loss"] >= 0.99 * flat:
            warnings.append(("flat", f"the loss, {entry['loss']:.4g}, {FLAT} {CURES}"))
        if spread < 1e-3:
            warnings.append(("collapse", COLLAPSE))
        if entry["lr"] == 0:
            warnings.append(("lr", "the learning rate is 0: nothing is learned any more."))
        self.falling = self.falling + 1 if score < self.best else 0
        if self.falling >= 5 and entry["loss"] < self.lowest_loss:
            text = (
                "over-fitting: the training loss still falls, but validation has been below its "
                "best for 5 evaluations. `early_stop` would end the run; the best checkpoint is "
                "kept in any case."
            )
            warnings.append(("over-fitting", text))
        self.best = max(self.best, score)
        self.lowest_loss = min(self.lowest_loss, entry["loss"])
        fresh = [text for key, text in warnings if key not in self.said]
        self.said |= {key for key, _ in warnings}
        return fresh

    def to_json(self) -> dict[str, Any]:
        """What it has seen so far, for a checkpoint."""
        return {**vars(self), "said": sorted(self.said)}

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Watch":
        """The inverse of `to_json`."""
        return Watch(**{**told, "said": set(told["said"])})


def not_finite(step: int, epoch: int, what: str) -> TrainingError:
    """Numbers that are none any more."""
    return TrainingError(
        f"step {step} (epoch {epoch}): {what}. Lower the learning rate, clip gradients "
        "(clip: 2.0), use bf16 instead of fp16, or look for damaged features with "
        "`simgrad datasets`."
    )


def damaged_weights(model: nn.Module) -> str | None:
    """The first weight or buffer that is not finite."""
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            return name
    return None


# What a CPU's allocator, the driver and CUDA's libraries say, in exceptions of no own kind.
_LACKING = ("can't allocate memory", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")


def _lacks_memory(error: BaseException | None) -> bool:
    """Also where ending a capture that lacked memory failed in turn."""
    if error is None:
        return False
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or any(t in str(error) for t in _LACKING) or _lacks_memory(error.__context__)


@contextmanager
def naming_lack_of_memory(recipe: "Recipe", step: Callable[[], int]) -> Iterator[None]:
    """Say which setting to lower when memory runs out, on a GPU or not."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _lacks_memory(error):
            raise
        piece = recipe.micro_batch or recipe.batch
        now = f"it is {recipe.micro_batch}" if recipe.micro_batch else "it is not set"
        raise TrainingError(
            f"out of memory after step {step()}, with batch {recipe.batch}. The same command with "
            f"`--micro-batch {max(1, piece // 2)}` ({now}) takes the same gradient in smaller "
            "pieces and goes on from the last checkpoint; a smaller `batch` is another run."
        ) from error
