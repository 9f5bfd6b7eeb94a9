"""What a run keeps: where it stands, its best weights, and a checkpoint to resume from."""

import dataclasses
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.core.devices import widest
from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks
from simgrad.models import save
from simgrad.retriever.retriever import Retriever
from simgrad.runs.run import BEST, LAST, VALIDATED
from simgrad.training import distributed, state
from simgrad.training.optimizing import Optimizer
from simgrad.training.trouble import Watch


@dataclass
class Progress:
    """The counters of a run."""

    step: int = 0  # updates made
    epoch: int = 0  # the one in work
    place: int = 0  # its batches that are done
    losses: int = 0  # added up since the last evaluation
    evaluations: int = 0
    best: float = -1.0  # validation score of the best weights
    best_step: int = 0
    best_objective: dict[str, Any] = field(default_factory=dict)  # what it had learned by then
    since_best: int = 0  # evaluations
    over: bool = False  # stopped early
    seconds: float = 0.0  # of earlier sittings
    warnings: list[dict[str, Any]] = field(default_factory=list)  # step and text
    scaler: dict[str, Any] = field(default_factory=dict)  # half precision's scale
    watch: Watch = field(default_factory=Watch)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return {**vars(self), "watch": self.watch.to_json()}

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Progress":
        """The inverse of `to_json`; refuses what is not of this version."""
        fields = {f.name: f for f in dataclasses.fields(Progress)}
        if told.keys() != fields.keys():
            raise InputError("its counters are not those of this version.")
        values = {**told, "watch": Watch.from_json(told["watch"])}
        default = Progress()
        for name, value in values.items():
            wanted = type(getattr(default, name))
            if type(value) is not wanted:
                raise InputError(f"its counter '{name}' is {value!r:.40}.")
        return Progress(**values)


class Checkpoints:
    """The parts of a run that change while it trains, and their files."""

    def __init__(
        self, folder: Path, retriever: Retriever, learned: nn.Module, optimizer: Optimizer
    ) -> None:
        self.folder, self.tokenizer = folder, retriever.tokenizer
        self.model, self.device = retriever.model, retriever.device
        self.learned, self.optimizer = learned, optimizer  # what objectives learn, and how
        self.progress = Progress()
        self._started = time.monotonic()
        # Losses, summed.
        self.total = torch.zeros((), device=self.device, dtype=widest(self.device))
        self.triplets: dict[str, Tensor] = {}  # by part of the run
        self.best: dict[str, Tensor] | None = None  # weights that are not on disk yet
        self.ranks: Ranks | None = None  # on the validation split, of the best weights: likewise

    def note_best(self, score: float, objective: nn.Module) -> None:
        """These weights are the best so far; the next checkpoint writes them."""
        at = self.progress
        at.best, at.best_step = score, at.step
        at.best_objective = {k: v.tolist() for k, v in objective.state_dict().items()}
        self.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}

    def write_ranks(self) -> None:
        """How the best weights ranked the validation split."""
        if self.ranks is not None:
            self.ranks.save(self.folder / VALIDATED)
            self.ranks = None

    def drop_weights(self) -> None:
        """Remove the weights of a trial: only its scores are kept."""
        shutil.rmtree(self.folder / BEST, ignore_errors=True)
        state.forget(self.folder / LAST)

    def seconds(self) -> float:
        """Training time of all sittings together."""
        return self.progress.seconds + time.monotonic() - self._started

    def write(self, select: str) -> None:
        """Write a checkpoint; of several processes the first does."""
        if distributed.rank() > 0:
            return
        self.write_ranks()
        if self.best is not None:
            self._write_best(self.best, select)
            self.best = None
        tensors = {
            **state.module_tensors("model", self.model),
            **state.module_tensors("objectives", self.learned),
            **state.optimizer_tensors(self.optimizer.inner),
            **state.random_tensors(self.device),
            **{f"triplets.{k}": v for k, v in self.triplets.items()},
            "total": self.total,
        }
        scaler = self.optimizer.scaler.state_dict()  # empty where there is none
        told = {**self.progress.to_json(), "seconds": self.seconds(), "scaler": scaler}
        state.save_state(self.folder / LAST, tensors, told)

    def _write_best(self, best: dict[str, Tensor], select: str) -> None:
        at, current = self.progress, self.model.state_dict()
        current = {k: v.detach().clone() for k, v in current.items()}
        self.model.load_state_dict(best)
        extra = {"step": at.best_step, select: at.best, "objective": at.best_objective}
        save(self.folder / BEST, self.model, self.tokenizer, extra)
        self.model.load_state_dict(current)

    def read(self) -> list[str] | None:
        """Go back to the last checkpoint: what was wrong with a newer one; None: there is none."""
        found = state.load_state(self.folder / LAST)
        if found is None:
            return None
        tensors, counters, problems = found
        self.progress = Progress.from_json(counters)
        state.restore_module("model", self.model, tensors)
        state.restore_module("objectives", self.learned, tensors)
        state.restore_optimizer(self.optimizer.inner, tensors)
        state.restore_random(tensors, self.device)
        if self.progress.scaler:
            self.optimizer.scaler.load_state_dict(self.progress.scaler)
        self.total.copy_(tensors["total"])
        self.triplets = {
            k.split(".")[1]: v for k, v in tensors.items() if k.startswith("triplets.")
        }
        return problems
