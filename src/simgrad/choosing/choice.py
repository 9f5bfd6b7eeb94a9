"""A choice between objectives: what is compared, how long, how often. It is decided once.

`choose.json` in the study's folder holds it. The study is made from that file alone, so whoever
goes on with the folder, at whatever time, does the same.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from simgrad.choosing.sizing import HALF, REPEATS, Size, every
from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.runs.naming import label_of
from simgrad.runs.outcome import CHOICE as CHOICE
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.tuned import score_of

_FIRST = "triplet"  # of all negatives: what rules of the hardest one may begin with


@dataclass(frozen=True)
class Choice:
    """What `simgrad choose` compares, and how."""

    data: str
    features: str | None
    skip: str | None
    model: str
    objectives: tuple[str, ...]
    device: str
    size: Size
    steps: int  # of an epoch
    processes: int  # side by side
    minutes: float  # that were asked for
    expected: float  # minutes that the plan should take, from a probe
    left_out: tuple[str, ...] = ()  # objectives for which there was no time
    threads: int | None = None  # of each run on a CPU: sums depend on it
    # Where settings are looked for, and what all share. As in files that do not say it.
    rates: tuple[float, float] = (2e-4, 3e-3)
    clip: float = 2.0
    reduction: Literal["mean", "sum"] = "mean"
    start: float | None = None  # the rate of each objective's first trial; None: all are drawn
    precision: Literal["float32", "bf16"] = "float32"
    first_epochs: tuple[int, ...] = (0,)  # of _FIRST
    crossed: bool = False  # each point that is drawn is tried with all of them
    length_from: Literal["epochs", "pilot", "usual"] = "usual"  # what says how long full is
    images: int = 0  # of the test split; 0: not noted, as in earlier versions
    seen_by: str = ""  # what the pictures are seen by: a network's name, or words
    for_two: float = 0.0  # minutes that a comparison of two needs, where there is none
    for_all: float = 0.0  # minutes that all would need, where some are left out
    before: float = 0.0  # minutes of `expected` for data, features, timing and pilot
    omitted: str = ""  # what of the data is left out, in words

    @property
    def alone(self) -> bool:
        """Whether there is time for one objective only, so that nothing is compared."""
        return len(self.objectives) == 1

    @property
    def short(self) -> bool:
        """Whether runs are too short to say who is ahead."""
        return self.size.share < HALF

    def recipe(self, epochs: int | None = None) -> Recipe:
        """What all runs share; of full length with those epochs."""
        epochs = epochs or self.size.epochs
        return Recipe(
            data=self.data,
            features=self.features,
            skip=self.skip,
            model=self.model,
            device=self.device,
            threads=self.threads,
            epochs=epochs,
            decay_every=max(1, math.ceil(2 * epochs / 3)),
            evaluate_every=every(epochs, self.steps),
            lr=self.start or math.sqrt(self.rates[0] * self.rates[1]),
            clip=self.clip,
            precision=self.precision,
            first_objective=_FIRST if any(self.first_epochs) else None,
            first_epochs=max(self.first_epochs) if self.start else 0,
        )

    def plan(self, name: str) -> Plan:
        """The tuned study of it."""
        low, high = self.rates
        several = len(self.first_epochs) > 1
        firsts: Any = list(self.first_epochs)
        firsts = {"crossed": firsts} if self.crossed else firsts
        told: dict[str, Any] = {
            "title": f"Which objective for {name}?",
            "recipe": self.recipe().to_dict(),
            "rows": [
                {"label": label_of(one), "set": {"objective": one}, "baseline": place == 0}
                for place, one in enumerate(self.objectives)
            ],
            "seeds": self.size.seeds,
            "short": self.short,
            "tune": {
                "trials": self.size.trials,
                "finalists": self.size.finalists,
                "repeats": REPEATS,
                "replicates": self.size.replicates,
                "extend": self.size.extend,
                # Points that do not depend on what other trials found, nor on who was first: with
                # several processes, a search that learns would depend on when each was stopped.
                "search": "quasi-random",
                "reduction": self.reduction,
                "start": self.start is not None,
                "space": {
                    "lr": {"low": low, "high": high},
                    "clip": None,
                    **({"first_epochs": firsts} if several else {}),
                },
            },
        }
        return plan_from_dict(told, CHOICE)

    def default_run(self) -> Recipe:
        """A training of the one objective that there is time for, with a usual setting."""
        assert self.alone
        return self.recipe().replace(
            objective=self.objectives[0], reduction=self.reduction, threads=None
        )

    def full_run(self, study: Study, label: str) -> Recipe:
        """A training of full length with the setting of an objective's best run."""
        best = best_run(study, label).recipe
        long = self.recipe(self.size.full_epochs)
        length = {key: getattr(long, key) for key in ("epochs", "decay_every", "evaluate_every")}
        return best.replace(**length, seed=0, threads=None)  # alone, it may have all cores

    def write(self, folder: Path) -> None:
        """Into its folder, whole or not at all."""
        write_checked(folder / CHOICE, asdict(self))

    @staticmethod
    def read(folder: Path) -> "Choice | None":
        """The one that was written; None where there is none."""
        path = folder / CHOICE
        if not path.is_file():
            return None
        try:
            return TypeAdapter(Choice).validate_python(read_checked(path))
        except ValidationError:
            raise InputError(f"{path}: not a plan of this version; give another folder.") from None

    def differs(self, **asked: str | Sequence[str] | None) -> list[str]:
        """Which of the things that somebody asks for now are other than those written."""
        found = []
        for name, value in asked.items():
            mine = getattr(self, name)
            if value is not None and value != (list(mine) if isinstance(mine, tuple) else mine):
                found.append(name)
        return found


def best_run(study: Study, label: str) -> Run:
    """An objective's best finished run on validation."""
    return max(study.groups[label], key=lambda run: (score_of(run), -run.recipe.seed))
