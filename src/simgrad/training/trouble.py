"""Trouble, named while it happens, with what is known to cure it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from simgrad.core.errors import InputError, OutOfMemory
from simgrad.objectives import Objective
from simgrad.runs.outcome import collapsed
from simgrad.runs.recipe import Recipe


class TrainingError(InputError):
    """Training cannot go on."""


@dataclass
class Watch:
    """Warnings about a run, by its evaluations; each is given once."""

    said: list[str] = field(default_factory=list)
    falling: int = 0  # evaluations in a row that were worse than the best
    lowest_loss: float = float("inf")
    spreads: list[float] = field(default_factory=list)  # of the last two evaluations

    def look(
        self, entry: dict[str, Any], spread: float, worse: bool, cures: Callable[[], str]
    ) -> list[str]:
        """Warnings for one evaluation.

        `spread`: how much the similarities of a query differ; `worse`: whether validation is worse
        than at its best; `cures`: what may help if the similarities do not differ.
        """
        warnings = []
        before, self.spreads = self.spreads, [*self.spreads, spread][-2:]
        if collapsed(before, spread):
            text = (
                f"a query finds all candidates (nearly) equally similar (they differ by "
                f"{spread:.2g}): training has collapsed to one point, or is about to. {cures()}"
            )
            warnings.append(("collapse", text))
        if entry["lr"] == 0:
            warnings.append(("lr", "the learning rate is 0: nothing is learned any more."))
        self.falling = self.falling + 1 if worse else 0
        if self.falling >= 5 and entry["loss"] < self.lowest_loss:
            text = (
                "over-fitting: the training loss still falls, but validation has been worse than "
                "its best for 5 evaluations. `early_stop` would end the run; the best checkpoint "
                "is kept in any case."
            )
            warnings.append(("over-fitting", text))
        self.lowest_loss = min(self.lowest_loss, entry["loss"])
        fresh = [text for key, text in warnings if key not in self.said]
        self.said += [key for key, _ in warnings if key not in self.said]
        return fresh

    def to_json(self) -> dict[str, Any]:
        """What it has seen so far, for a checkpoint."""
        return dict(vars(self))

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Watch":
        """The inverse of `to_json`."""
        found = dict(**told)
        found.pop("best", None)  # checkpoints of earlier versions hold a best score here too
        return Watch(**found)


def cures_of_collapse(
    recipe: Recipe, objective: Objective, can_freeze: bool, lock: str | None = None
) -> str:
    """What may help against collapse, and was not done yet.

    `can_freeze`, `lock`: how the model keeps an image network that it trains as it was.
    """
    found = []
    if objective.sparse:  # it weighs only the hardest negative
        longer = recipe.first_epochs + 1
        if recipe.first_objective is None or not recipe.first_epochs:
            found.append("begin with every negative (`first_objective: triplet, first_epochs: 1`)")
        else:
            found.append(f"keep `{recipe.first_objective}` for longer (`first_epochs: {longer}`)")
        found.append("take an objective that weighs more than the hardest negative")
    found.append(f"lower the learning rate (`lr: {recipe.lr / 10:g}`)")
    if not recipe.warmup:
        found.append("let it rise slowly (`warmup: 0.1`)")
    if not recipe.clip:
        found.append("clip the gradient (`clip: 2.0`)")
    if can_freeze and not recipe.freeze_epochs and not recipe.finetune_epochs:
        found.append("train with the image network frozen first (`freeze_epochs: 1`)")
    if lock:
        found.append(f"lock the image network (`{lock}` in the model)")
    if recipe.batch < 128:
        found.append("take a larger batch")
    return f"What may help: {'; '.join(found)}."


def not_finite(step: int, epoch: int, what: str, objectives: Iterable[Objective]) -> TrainingError:
    """Error for NaN or infinity; a rule of one's own is to be looked at first."""
    own = next((one for one in objectives if one.own), None)
    first = "Lower"
    if own is not None:
        first = (
            f"Look at {own.own} first: simgrad.analysis.check('{own.name}', images, texts) tries "
            "it. If it is right, lower"
        )
    return TrainingError(
        f"step {step} (epoch {epoch}): {what}. {first} the learning rate, clip gradients "
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


def lacks_memory(error: BaseException | None) -> bool:
    """Also where ending a capture that lacked memory failed in turn."""
    if error is None:
        return False
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or any(t in str(error) for t in _LACKING) or lacks_memory(error.__context__)


@contextmanager
def naming_lack_of_memory(recipe: Recipe, step: Callable[[], int]) -> Iterator[None]:
    """Say which setting to lower when memory runs out, on a GPU or not."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        piece = recipe.micro_batch or recipe.batch
        now = f"it is {recipe.micro_batch}" if recipe.micro_batch else "it is not set"
        raise OutOfMemory(
            f"out of memory after step {step()}, with batch {recipe.batch}. The same command with "
            f"`micro_batch={max(1, piece // 2)}` ({now}) takes the same gradient in smaller "
            "pieces and resumes from the last checkpoint; a smaller `batch` starts another run."
        ) from error
