"""Trouble, named while it happens, with what is known to cure it."""

from dataclasses import dataclass, field
from typing import Any

from simgrad.errors import InputError


class TrainingError(InputError):
    """Training cannot go on."""


COLLAPSE = (
    "all similarities are (nearly) equal: training has collapsed to one point, as hardest-negative "
    "training can. Known cures: start with `first_objective: triplet` for an epoch, a lower "
    "learning rate, a larger batch, precomputed features before fine-tuning, or an objective "
    "that weighs more than the hardest negative (nt-xent, goal)."
)


@dataclass
class Watch:
    """Looks at every evaluation; says each thing once."""

    said: set[str] = field(default_factory=set)
    falling: int = 0
    best: float = -1.0
    lowest_loss: float = float("inf")

    def look(self, entry: dict[str, Any], spread: float, score: float) -> list[str]:
        """Warnings for one evaluation. `spread`: standard deviation of validation similarities."""
        warnings = []
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


def not_finite(step: int, epoch: int, loss: float, captions: list[int]) -> TrainingError:
    """The loss is not a number any more."""
    some = ", ".join(map(str, captions[:8]))
    return TrainingError(
        f"step {step} (epoch {epoch}): the loss is {loss}. The batch began with training captions "
        f"{some}. Lower the learning rate, clip gradients (clip: 2.0), use bf16 instead of fp16, "
        "or look for damaged features with `simgrad datasets`."
    )
