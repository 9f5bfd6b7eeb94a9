"""What a search found for a row: one file, written when the last of its trials is over.

`tuned/ROW.json` has the space, every trial, the setting that validation chose, what lies at an end
of its range, which settings mattered and what it all cost. Tables and reports read this file; the
runs of the table take their setting from it. It is made from the journal and the trials' folders,
and can be made from them again.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.runs.outcome import score_at_end
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.belonging import own_run
from simgrad.studies.search import Search, Trial
from simgrad.studies.space import (
    apply,
    base_of,
    extensions,
    is_whole,
    space_of,
    start_of,
    trial_of,
)
from simgrad.studies.tune import Setting, Tune, at_edges, plain
from simgrad.training.optimizing import total_epochs

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
        beyond = extensions(self.tune, self.recipe, space)
        return Search(self.folder, self.name, space, self.tune, whole, start, beyond)

    def run_of(self, trial: Trial, repeat: int = 0) -> tuple[Path, Recipe]:
        """Where a trial's run is, and what it does; repeated, with another seed."""
        setting = apply(base_of(self.tune, self.recipe), trial.setting)
        recipe = trial_of(setting, self.tune.seed + repeat)
        name = f"{self.name}-t{trial.number:03d}" + (f"-r{repeat}" if repeat else "")
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
        for one in (found, found["chosen"] or {}, *found["tried"]):
            for gone in ("halving", "short", "halved", "promoted"):  # of earlier versions
                one.pop(gone, None)
        return found

    def conclude(self) -> bool:
        """Write down what was found, if every trial is over; whether it was."""
        if self.path.is_file():
            return True
        trials = self.search.trials()
        if not self._over(trials) or self.to_repeat(trials):
            return False
        write_checked(self.path, self.summary(trials))
        return True

    def _over(self, trials: list[Trial]) -> bool:
        return len(trials) >= self.search.count(trials) and all(
            t.state != "running" for t in trials
        )

    def repeats(self, trials: list[Trial]) -> dict[int, list[tuple[Path, Recipe]]]:
        """Of each finalist, by its number, the runs with further seeds: one trial may be luck.

        None before every trial is over, and none where there is nothing to choose between.
        """
        if not self.tune.further or not self._over(trials):
            return {}
        scored = [trial for trial in trials if trial.score is not None]
        best = sorted(scored, key=lambda t: (-(t.score or 0.0), t.number))[: self.tune.finalists]
        if len(best) < 2:
            return {}
        further = range(1, self.tune.repeats + 1)
        return {t.number: [self.run_of(t, one) for one in further] for t in best}

    def to_repeat(self, trials: list[Trial]) -> list[tuple[Path, Recipe]]:
        """The runs of finalists that are not over."""
        runs = (run for several in self.repeats(trials).values() for run in several)
        return [run for run in runs if repeated_score(*run) is None]

    def summary(self, trials: list[Trial]) -> dict[str, Any]:
        """Everything about trials that are over."""
        space, repeats = self.search.whole_space(trials), self.repeats(trials)
        tried = []
        for trial in trials:
            further = repeats.get(trial.number, [])
            one = {**asdict(trial), **self._cost(trial, further)}
            if further:
                one["repeats"] = [repeated_score(*run) for run in further]
            tried.append(one)
        best = chosen(tried)
        costs = {key: sum(one[key] for one in tried) for key in ("epochs", "seconds")}
        return {
            "row": self.name,
            "select": self.tune.select or self.recipe.select,
            "search": self.tune.search,
            "space": {key: plain(where) for key, where in space.items()},
            "tried": tried,
            "chosen": best and {k: v for k, v in best.items() if k not in ("epochs", "seconds")},
            "edges": [] if best is None else at_edges(space, best["setting"]),
            "importance": self.search.importance(),
            "budget": {"trials": len(trials), **{k: round(v, 1) for k, v in costs.items()}},
        }

    def _cost(self, trial: Trial, further: list[tuple[Path, Recipe]]) -> dict[str, float]:
        """Epochs and seconds, those of further seeds too."""
        epochs, seconds = 0, 0.0
        for folder, recipe in [self.run_of(trial), *further]:
            if folder.is_dir():
                epochs += total_epochs(
                    recipe if recipe.second_round is None else recipe.round_two()
                )
                seconds += float(Run(folder).info.get("seconds", 0.0))
        return {"epochs": epochs, "seconds": round(seconds, 3)}


def chosen(tried: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The best on validation, of finalists where there are any; of equal ones the first."""
    return max(compared(tried), key=lambda one: (validation_of(one), -one["number"]), default=None)


def compared(tried: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trials between which validation decides: finalists where there are any, else all."""
    scored = [one for one in tried if one["score"] is not None]
    return [one for one in scored if "repeats" in one] or scored


def validation_of(tried: dict[str, Any]) -> float:
    """A setting's score on validation: the mean over its seeds, if it was tried with several."""
    return float(fmean([tried["score"], *tried.get("repeats", ())]))


def repeated_score(folder: Path, recipe: Recipe) -> float | None:
    """Of a finalist's run with a further seed; None before it is over."""
    return score_at_end(own_run(folder, recipe), score_of)


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
