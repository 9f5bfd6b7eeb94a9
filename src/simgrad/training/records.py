"""What a run notes while it trains: a line for each evaluation, and more where a recipe asks.

`run.json` tells how it stands, what it was run with and where; `triplets.npz` is for the diagrams.
`metrics.jsonl` has the evaluations; `attention.jsonl` how the objective spreads its weight every
`attention_every` steps; `tensorboard/` the figures of both, for those who look there.
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.extras import imported
from simgrad.core.files import atomic_path, atomic_write, refuse_link, sweep, writing
from simgrad.data.base import Dataset
from simgrad.retriever.retriever import Retriever
from simgrad.runs.data import record_of, same_data, what_is_tested
from simgrad.runs.environment import environment, host
from simgrad.runs.recipe import Recipe, differing
from simgrad.runs.run import (
    ATTENTION,
    BEST,
    HISTORY,
    LAST,
    RECIPE,
    TRIPLETS,
    Run,
    write_info,
)
from simgrad.training.checkpoints import Progress
from simgrad.training.loggers import LOGGERS, Log, chosen

# Where the data lie; what they hold is compared when they are opened.
_PLACE = ("data", "features", "skip")


def claim(recipe: Recipe, folder: Path, dataset: Dataset | None = None) -> None:
    """Write the recipe into a folder; refuse one that holds another run."""
    path = folder / RECIPE
    for place in (folder, folder / BEST, folder / LAST):
        sweep(place)
    if path.exists():
        changed = differing(Run(folder).recipe, recipe)
        if any(k not in _PLACE for k in changed):
            raise InputError(
                f"{folder} holds a run with another recipe ({', '.join(changed)} differ). "
                "Give another folder, or remove the folder."
            )
        if not changed:
            return
        same_data(Run(folder).info, dataset or recipe.dataset(), folder)  # moved, but the same
    recipe.save(path)


class Records:
    """The files of one run; of several processes the first alone writes them."""

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        retriever: Retriever,
        writes: bool,
        log: Log | None = None,
    ) -> None:
        self.folder, self.recipe, self.retriever, self.writes = folder, recipe, retriever, writes
        self.every = recipe.attention_every
        self.named = chosen(recipe) if writes else []
        self.logs: list[Log] = [log] if log is not None and writes else []
        self.at_end = ExitStack()

    def begin(self, evaluations: int, step: int) -> None:
        """Keep what was noted before a checkpoint: what came after it will come again."""
        if not self.writes:
            return
        noted = step // self.every if self.every else 0
        for name, count in ((HISTORY, evaluations), (ATTENTION, noted)):
            path = self.folder / name
            if path.is_file():
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines(True)
                with atomic_write(path) as file:
                    file.writelines(lines[:count])
        for name in self.named:
            self.logs.append(LOGGERS[name](self.folder, self.recipe, step, self.at_end))

    def evaluation(self, entry: dict[str, Any]) -> None:
        self._add(HISTORY, entry)

    def attention(self, entry: dict[str, Any]) -> None:
        self._add(ATTENTION, entry)

    def describe(self, status: str, at: Progress, seconds: float) -> None:
        """How the run stands."""
        if not self.writes:
            return
        dataset = self.retriever.dataset
        asked = what_is_tested(self.recipe, dataset)
        before = Run(self.folder).info.get("hosts", [])  # a run may go on on another machine
        info = {
            "status": status,
            **{k: getattr(self.recipe, k) for k in ("seed", "objective", "model", "data")},
            "trial": self.recipe.validation_only,
            "steps": at.step,
            "epochs": at.epoch,
            "best": {self.recipe.select: at.best, "step": at.best_step},
            "seconds": round(seconds, 3),
            "warnings": at.warnings,
            "hosts": [*before, *({host()} - set(before))],
            "device": str(self.retriever.device),
            "threads": torch.get_num_threads(),
            "with": imported(),
            "dataset": record_of(dataset),
            "data_fingerprint": dataset.fingerprint(),
            "tested": None if asked is None else asked.to_dict(),
            **environment(),
        }
        write_info(self.folder, info)

    def triplets(self, parts: dict[str, Tensor]) -> None:
        """Write the triplets of the early, middle and late part of the run, where there are any."""
        if not self.writes or not parts:
            return
        arrays: dict[str, Any] = {k: v.cpu().numpy() for k, v in parts.items()}
        with atomic_path(self.folder / TRIPLETS) as path, open(path, "wb") as file:
            np.savez(file, **arrays)

    def _add(self, name: str, entry: dict[str, Any]) -> None:
        if not self.writes:
            return
        path = self.folder / name
        with writing(path):
            refuse_link(path)
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        for log in self.logs:
            log(entry["step"], figures(entry))

    def close(self) -> None:
        """Nothing more will be noted."""
        self.at_end.close()


def figures(entry: dict[str, Any], within: str = "") -> dict[str, float]:
    """The numbers of an entry by where they stand: `val/rsum`, `attention/i2t/effective`."""
    found: dict[str, float] = {}
    for name, value in entry.items():
        if isinstance(value, dict):
            found |= figures(value, f"{within}{name}/")
        elif name != "step":
            found[within + name] = float(value)
    return found
