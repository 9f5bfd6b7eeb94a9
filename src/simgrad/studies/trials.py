"""Working on trials: take one that nobody works on, train it, tell its score, take the next.

Trials of one process share what they read: imports, data and vocabulary are there after the first.
A trial that was begun by a worker that is gone is finished before a new one is asked for. When the
trials of a row are over, its finalists are trained with more seeds.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from simgrad.core.errors import Busy, OutOfMemory
from simgrad.core.files import held
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import LOCK, Run
from simgrad.studies.search import Trial
from simgrad.studies.tuned import Tuning, score_of
from simgrad.training.optimizing import total_epochs
from simgrad.training.sitting import stop_asked
from simgrad.training.trouble import TrainingError

Train = Callable[[Path, Recipe], Exception | None]
Log = Callable[[str], Any]
_PATIENCE = 0.5  # seconds between two looks at trials that others work on


class Trials:
    """The trials of all rows of a study, as one process sees them."""

    def __init__(
        self,
        tunings: list[Tuning],
        train: Train,
        meanwhile: Callable[[], bool] = lambda: False,
        start: float = 0.0,
        in_turn: bool = True,
    ) -> None:
        """`start`: with which replicate to begin, as a share of all; the others follow.

        `in_turn`: rows take turns, so that all come to their ends together. Else one row is
        searched after the other: runs that train together have the same objective then.
        """
        by_replicate = [list(some) for _, some in groupby(tunings, key=lambda t: t.tune.seed)]
        first = int(start * len(by_replicate))
        self.replicates = by_replicate[first:] + by_replicate[:first]
        self.tunings, self.train, self.in_turn = tunings, train, in_turn
        self.meanwhile = meanwhile  # something else to do while others finish; whether it was done
        # Runs, by their folders' names: a trial's, or a finalist's with another seed.
        self.given_up: set[str] = set()  # failed here
        self.crowded: set[str] = set()  # found no room on the GPU once

    def work(self, log: Log | None = None) -> None:
        """Until every row is searched, or nothing is left that can be done here."""
        while not stop_asked():
            job = self._take()
            if job is not None:
                job(log)
            elif not self._waiting():
                return
            elif not self.meanwhile():
                time.sleep(_PATIENCE)

    def _open(self, tunings: Iterable[Tuning]) -> list[Tuning]:
        return [t for t in tunings if not t.conclude()]

    def _waiting(self) -> bool:
        """Whether a run that others work on, or that may be left to us, is not over."""
        for tuning in self._open(self.tunings):
            trials = tuning.search.trials()
            left = [tuning.run_of(t) for t in trials if t.state == "running"]
            left += tuning.to_repeat(trials)
            if any(folder.name not in self.given_up for folder, _ in left):
                return True
            tuning.conclude()  # others may have finished the last of it since we looked
        return False

    def _take(self) -> Callable[[Log | None], None] | None:
        """Something to do, of the first replicate that has something."""
        for tunings in self.replicates:
            job = self._take_of(tunings)
            if job is not None:
                return job
        return None

    def _take_of(self, tunings: Iterable[Tuning]) -> Callable[[Log | None], None] | None:
        """A trial that was left behind, or a new one, of the row whose turn it is; or a finalist
        of a row whose trials are over."""
        left: list[tuple[int, int, int, Tuning]] = []
        further: list[tuple[Path, Recipe]] = []
        for tuning in self._open(tunings):
            trials = tuning.search.trials()
            for trial in trials:
                if trial.state == "running" and self._free(tuning.run_of(trial)[0]):
                    return partial(self._try, tuning, trial)
            missing = tuning.search.count(trials) - len(trials)
            turn = -missing * total_epochs(tuning.recipe) if self.in_turn else 0
            left.append((turn, len(left), missing, tuning))
            further += tuning.to_repeat(trials)
        for _, _, missing, tuning in sorted(left, key=lambda one: one[:2]):
            asked = tuning.search.ask() if missing else None
            if asked is not None:
                return partial(self._try, tuning, asked)
        for folder, recipe in further:
            if self._free(folder):
                return partial(self._repeat, folder, recipe)
        return None

    def _free(self, folder: Path) -> bool:
        """Whether nobody works on it, and it did not fail here."""
        return folder.name not in self.given_up and not held(folder / LOCK)

    def _try(self, tuning: Tuning, trial: Trial, log: Log | None) -> None:
        """Train a trial and tell its score."""
        folder, recipe = tuning.run_of(trial)
        problem = self.train(folder, recipe)
        if problem is None:
            if Run(folder).finished:  # else somebody asked us to stop
                tuning.search.tell(trial.number, score_of(Run(folder)))
            return
        if isinstance(problem, TrainingError):
            tuning.search.fail(trial.number)  # it diverged, and would again
        else:
            self._trouble(folder, problem)
        if log is not None:
            log(f"{folder.name}: {problem}")

    def _repeat(self, folder: Path, recipe: Recipe, log: Log | None) -> None:
        """Train a finalist with another seed; its folder has the score."""
        problem = self.train(folder, recipe)
        if problem is not None:
            if not isinstance(problem, TrainingError):  # its folder says that it diverged
                self._trouble(folder, problem)
            if log is not None:
                log(f"{folder.name}: {problem}")

    def _trouble(self, folder: Path, problem: Exception) -> None:
        if isinstance(problem, Busy):
            time.sleep(_PATIENCE)  # another was faster
        elif isinstance(problem, OutOfMemory) and folder.name not in self.crowded:
            self.crowded.add(folder.name)  # others may have held it: once more
        else:
            self.given_up.add(folder.name)  # its run says why; the same command tries it again
