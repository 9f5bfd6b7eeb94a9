"""What a search found for a row: one file, written when the last of its trials is over.

`tuned/ROW.json` has the space, every trial, the setting that validation chose, what lies at an end
of its range, which settings mattered and what it all cost. Tables and reports read this file; the
runs of the table take their setting from it. It is made from the journal and the trials' folders,
and can be made from them again.
"""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.search import CALIBRATED, Rung, Search, Trial, correlation
from simgrad.studies.space import (
    Setting,
    Tune,
    apply,
    at_edges,
    base_of,
    is_whole,
    plain,
    shortened,
    space_of,
    start_of,
    trial_of,
)
from simgrad.training.schedule import total_epochs

TUNED, TRIALS = "tuned", "trials"


@dataclass(frozen=True)
class Tuning:
    """The search of one row in a study's folder."""

    folder: Path  # of the study
    name: str  # of the row
    recipe: Recipe  # of the row, whatever its seed
    tune: Tune
    fixed: tuple[str, ...] = ()  # fields of the schedule that are not searched

    @cached_property
    def search(self) -> Search:
        space = space_of(self.tune, self.recipe, self.fixed)
        whole = frozenset(key for key in space if is_whole(self.recipe, key))
        start = start_of(space, self.recipe) if self.tune.start else None
        return Search(self.folder, self.name, space, self.tune, whole, start)

    def run_of(self, trial: Trial, rung: Rung) -> tuple[Path, Recipe]:
        """Where a trial's run is, and what it does."""
        recipe = trial_of(apply(base_of(self.tune, self.recipe), trial.setting), self.tune.seed)
        name = f"{self.name}-t{trial.number:03d}"
        if rung == "short":
            name, recipe = f"{name}-short", shortened(recipe, self.tune.halving or 1.0)
        return self.folder / TRIALS / name, recipe

    @property
    def path(self) -> Path:
        return self.folder / TUNED / f"{self.name}.json"

    @property
    def record(self) -> dict[str, Any] | None:
        """What was found; None before the search is finished."""
        if not self.path.is_file():
            return None
        found = read_checked(self.path)
        kinds = {"chosen": dict | None, "tried": list, "space": dict}
        if not isinstance(found, dict) or not all(
            key in found and isinstance(found[key], kind) for key, kind in kinds.items()
        ):
            raise InputError(f"{self.path}: damaged: it is not what a search writes.")
        return found

    def conclude(self) -> bool:
        """Write down what was found, if every trial is over; whether it was."""
        if self.path.is_file():
            return True
        trials = self.search.trials()
        if len(trials) < self.search.count or any(t.state == "running" for t in trials):
            return False
        write_checked(self.path, self.summary(trials))
        return True

    def summary(self, trials: list[Trial]) -> dict[str, Any]:
        """Everything about trials that are over."""
        space = self.search.space
        tried = [{**asdict(trial), **self._cost(trial)} for trial in trials]
        best = chosen(trials)
        costs = {key: sum(one[key] for one in tried) for key in ("epochs", "seconds")}
        return {
            "row": self.name,
            "select": self.tune.select or self.recipe.select,
            "search": self.tune.search,
            "space": {key: plain(where) for key, where in space.items()},
            "tried": tried,
            "chosen": None if best is None else asdict(best),
            "edges": [] if best is None else at_edges(space, best.setting),
            "importance": self.search.importance(),
            "halving": self._halving(trials),
            "budget": {"trials": len(trials), **{k: round(v, 1) for k, v in costs.items()}},
        }

    def _cost(self, trial: Trial) -> dict[str, float]:
        """Epochs and seconds of both lengths."""
        epochs, seconds = 0, 0.0
        for rung in ("short", "full"):
            folder, recipe = self.run_of(trial, rung)  # type: ignore[arg-type]
            if folder.is_dir():
                epochs += total_epochs(
                    recipe if recipe.second_round is None else recipe.round_two()
                )
                seconds += float(Run(folder).info.get("seconds", 0.0))
        return {"epochs": epochs, "seconds": round(seconds, 3)}

    def _halving(self, trials: list[Trial]) -> dict[str, Any] | None:
        if self.tune.halving is None:
            return None
        both = sum(t.short is not None and t.score is not None for t in trials)
        stopped = sum(t.state == "stopped" for t in trials)
        return {
            "share": self.tune.halving,
            "correlation": correlation(trials),
            "calibrated_on": min(both, CALIBRATED),
            "both": both,
            "stopped": stopped,
        }


def chosen(trials: list[Trial]) -> Trial | None:
    """The best on validation; of equal ones the first."""
    scored = [trial for trial in trials if trial.score is not None]
    return max(scored, key=lambda t: (t.score or 0.0, -t.number)) if scored else None


def score_of(run: Run) -> float:
    """The best validation score of a finished run."""
    value = run.info.get("best", {}).get(run.recipe.select)
    if value is None or not math.isfinite(value):
        raise InputError(f"{run.path}: finished without a validation score.")
    return float(value)


def setting_of(record: dict[str, Any]) -> Setting | None:
    """The setting that was chosen; None where every trial failed."""
    best = record["chosen"]
    return None if best is None else dict(best["setting"])
