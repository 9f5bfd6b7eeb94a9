"""Working on trials: take one that nobody works on, train it, tell its score, take the next.

Trials of one process share what they read: imports, data and vocabulary are there after the first.
A trial that was begun by a worker that is gone is finished before a new one is asked for.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simgrad.core.errors import Busy, OutOfMemory
from simgrad.core.files import held
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import LOCK, Run
from simgrad.studies.search import Trial
from simgrad.studies.tuned import Tuning, score_of
from simgrad.training.schedule import total_epochs
from simgrad.training.stopping import stop_asked
from simgrad.training.trouble import TrainingError

Train = Callable[[Path, Recipe], Exception | None]
_PATIENCE = 0.5  # seconds between two looks at trials that others work on


class Trials:
    """The trials of all rows of a study, as one process sees them."""

    def __init__(
        self, tunings: list[Tuning], train: Train, meanwhile: Callable[[], bool] = lambda: False
    ) -> None:
        self.tunings, self.train = tunings, train
        self.meanwhile = meanwhile  # something else to do while others finish; whether it was done
        self.given_up: set[tuple[str, int]] = set()  # failed here
        self.crowded: set[tuple[str, int]] = set()  # found no room on the GPU once

    def work(self, log: Callable[[str], Any] | None = None) -> None:
        """Until every row is searched, or nothing is left that can be done here."""
        while not stop_asked():
            taken = self._take()
            if taken is not None:
                self._do(*taken, log)
            elif not self._waiting():
                return
            elif not self.meanwhile():
                time.sleep(_PATIENCE)

    def _open(self) -> list[Tuning]:
        return [t for t in self.tunings if not t.conclude()]

    def _waiting(self) -> bool:
        """Whether a trial that others work on, or that may be left to us, is not over."""
        for tuning in self._open():
            running = [t for t in tuning.search.trials() if t.state == "running"]
            if any((tuning.name, t.number) not in self.given_up for t in running):
                return True
        return False

    def _take(self) -> tuple[Tuning, Trial] | None:
        """A trial that was left behind, or a new one: of the row with most left to do."""
        left: list[tuple[int, int, Tuning]] = []
        for tuning in self._open():
            trials = tuning.search.trials()
            for trial in trials:
                if trial.state == "running" and self._free(tuning, trial):
                    return tuning, trial
            missing = tuning.search.count - len(trials)
            left.append((-missing * total_epochs(tuning.recipe), len(left), tuning))
        for missing, _, tuning in sorted(left, key=lambda one: one[:2]):
            asked = tuning.search.ask() if missing else None
            if asked is not None:
                return tuning, asked
        return None

    def _free(self, tuning: Tuning, trial: Trial) -> bool:
        key = (tuning.name, trial.number)
        if key in self.given_up:
            return False
        return not any(held(tuning.run_of(trial, r)[0] / LOCK) for r in ("short", "full"))

    def _do(self, tuning: Tuning, trial: Trial, log: Callable[[str], Any] | None) -> None:
        while (rung := tuning.search.next_rung(trial.number)) is not None:
            folder, recipe = tuning.run_of(trial, rung)
            problem = self.train(folder, recipe)
            if problem is not None:
                self._trouble(tuning, trial, problem)
                if log is not None:
                    log(f"{folder.name}: {problem}")
                return
            if not Run(folder).finished:  # somebody asked us to stop
                return
            tuning.search.tell(trial.number, rung, score_of(Run(folder)))

    def _trouble(self, tuning: Tuning, trial: Trial, problem: Exception) -> None:
        key = (tuning.name, trial.number)
        if isinstance(problem, Busy):
            time.sleep(_PATIENCE)  # another was faster
        elif isinstance(problem, OutOfMemory) and key not in self.crowded:
            self.crowded.add(key)  # others may have held it: once more
        elif isinstance(problem, TrainingError):
            tuning.search.fail(trial.number)  # it diverged, and would again
        else:
            self.given_up.add(key)  # its run says why; the same command tries it again
