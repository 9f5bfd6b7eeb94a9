"""The search of one row: which settings are tried, kept in a journal in the study's folder.

Quasi-random settings come first, then TPE learns from the scores of this row alone. Which settings
are tried depends on the study file and the seed, and not on how many work on it or how fast: a
trial knows the trials of the rounds before its own, and is asked for when these are over. Whoever
works on the study asks here under one lock, which dies with its holder: a budget is never
overdrawn, and a trial whose worker was killed is taken up by the next one who asks.

Values that are crossed are not drawn: each point is tried with every mix of them. Where the best
trial lies at the end of a range and `extend` is on, a fixed number of further trials looks around
that end. They know the trials before, and are asked for when these are over.
"""

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from simgrad.core.errors import InputError
from simgrad.core.files import lock, sha256
from simgrad.core.spec import Range
from simgrad.studies.drawn_settings import grid_of, learned, quasi_random, recalled, shuffled
from simgrad.studies.journal import JOURNAL, Event, Journal, optuna_or_say
from simgrad.studies.tune import End, Setting, Space, Tune, end_of, mixes, rounded

_LOCK = ".search.lock"
State = Literal["running", "complete", "failed"]
ROUND = 4  # trials that are asked for together where each learns from others


@dataclass(frozen=True)
class Trial:
    """One setting of a row."""

    number: int
    setting: Setting
    how: str  # quasi-random, tpe, grid, start or extended
    state: State
    score: float | None = None  # on validation


class Search:
    """The trials of one row; `whole` names what takes whole numbers."""

    def __init__(
        self,
        folder: Path,
        name: str,
        space: Space,
        tune: Tune,
        whole: frozenset[str] = frozenset(),
        start: Setting | None = None,
        extensions: Mapping[tuple[str, End], Range] | None = None,
    ) -> None:
        self.folder, self.name, self.tune, self.whole = folder, name, tune, whole
        self.space, self.start = space, start  # the setting of the first trial, if it is not drawn
        self._extensions = extensions or {}  # where to look beyond an end
        self._mixes = mixes(space) if tune.search != "grid" else [{}]
        self._journal = Journal(folder / JOURNAL)

    @cached_property
    def grid(self) -> list[Setting]:
        """The points of a grid, in the order in which they are tried."""
        return shuffled(grid_of(self.space, self.tune.trials), self.tune.seed)

    @property
    def first(self) -> int:
        """How many trials there are before any range is extended: a grid may have fewer points than
        the budget."""
        trials = self.tune.trials
        return min(trials, len(self.grid)) if self.tune.search == "grid" else trials

    def count(self, trials: list[Trial]) -> int:
        """How many trials there will be; more than the first ones once a range is extended."""
        more = self.tune.beyond(len(self._mixes)) if self.extended(trials) else 0
        return self.first + more

    def extended(self, trials: list[Trial]) -> dict[str, Range]:
        """Wider ranges for what the best trial has at an end; none before all trials are over."""
        first = trials[: self.first]
        if len(first) < self.first or any(trial.state == "running" for trial in first):
            return {}
        scored = [trial for trial in first if trial.score is not None]
        if not scored:
            return {}
        best = max(scored, key=lambda t: (t.score or 0.0, -t.number))
        ends = ((key, end_of(where, best.setting[key])) for key, where in self.space.items())
        found = {key: self._extensions.get((key, end)) for key, end in ends if end is not None}
        return {key: wider for key, wider in found.items() if wider is not None}

    def whole_space(self, trials: list[Trial]) -> Space:
        """The ranges that were searched, with their extensions."""
        space = dict(self.space)
        for key, wider in self.extended(trials).items():
            was = space[key]
            assert isinstance(was, Range)
            space[key] = Range(min(was.low, wider.low), max(was.high, wider.high), was.log)
        return space

    def trials(self) -> list[Trial]:
        """Every trial so far."""
        with self._locked():
            return self._read()

    def ask(self) -> Trial | None:
        """A new trial; None if the budget is spent, or if trials that it learns from still run."""
        with self._locked():
            trials = self._read()
            place = len(trials)
            known = trials[: self._known(place)]
            if place >= self.count(trials) or any(trial.state == "running" for trial in known):
                return None
            how: str = self.tune.search
            if how == "tpe" and place < self.tune.quasi_random:
                how = "quasi-random"
            if self.start is not None and place < len(self._mixes):
                how = "start"
            if place >= self.first:
                how = "extended"
            drawn = self._drawn(how, place, known, trials[len(known) :])
            setting = {key: rounded(drawn[key], key in self.whole) for key in sorted(self.space)}
            number = 1 + max((trial.number for trial in trials), default=-1)
            self._note(number, asked=setting, how=how)
            return self._at(number)

    def tell(self, number: int, score: float) -> None:
        """Note the best validation score of a trial; a second call for it changes nothing."""
        with self._locked():
            if self._at(number).state == "running":
                self._note(number, state="complete", score=score)

    def fail(self, number: int) -> None:
        """Note that a trial diverged: it counts, without a score."""
        with self._locked():
            if self._at(number).state == "running":
                self._note(number, state="failed")

    def importance(self) -> dict[str, float]:
        """How much of the difference between good and other trials each setting explains
        (PED-ANOVA, Watanabe et al., IJCAI 2023); nothing from fewer than four scores, or where
        Optuna, which computes it, is not installed."""
        if importlib.util.find_spec("optuna") is None:
            return {}
        optuna = optuna_or_say()
        trials = self.trials()
        if len({trial.score for trial in trials if trial.score is not None}) < 4:
            return {}
        found = optuna.importance.get_param_importances(
            recalled(self.whole_space(trials), trials),
            evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
        )
        return {name: round(float(share), 4) for name, share in found.items()}

    # -- how it is done

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with lock(self.folder / _LOCK, what=f"the search in {self.folder}"):
            yield

    def _read(self) -> list[Trial]:
        found: dict[int, Trial] = {}
        for event in self._journal.events():
            if event["row"] == self.name:
                number = event["trial"]
                if ("asked" in event) == (number in found):
                    raise InputError(
                        f"{self._journal.path}: damaged: trial {number} of '{self.name}' is asked "
                        "for twice or never. Copy the file again; or move it away and run the "
                        "study's command again."
                    )
                found[number] = self._after(found.get(number), event)
        return list(found.values())

    def _after(self, trial: Trial | None, event: Event) -> Trial:
        """A trial as it is after one more event."""
        if trial is None:
            asked = event["asked"]
            missing = [key for key in self.space if key not in asked]
            if missing:
                raise InputError(
                    f"{self._journal.path}: trial {event['trial']} of '{self.name}' has no "
                    f"{missing[0]}: it is of another study."
                )
            setting = {k: rounded(asked[k], k in self.whole) for k in sorted(self.space)}
            return Trial(event["trial"], setting, event["how"], "running")
        told = {key: value for key, value in event.items() if key not in ("row", "trial")}
        return replace(trial, **told)

    def _at(self, number: int) -> Trial:
        return next(trial for trial in self._read() if trial.number == number)

    def _note(self, number: int, **told: Any) -> None:
        self._journal.add({"row": self.name, "trial": number, **told})

    def _known(self, place: int) -> int:
        """How many trials come before the round of this one: these it knows, and no others."""
        if place >= self.first:
            return self.first
        if self.tune.search != "tpe":
            return 0
        first = self.tune.quasi_random
        return 0 if place < first else first + (place - first) // ROUND * ROUND

    def _drawn(self, how: str, place: int, known: list[Trial], beside: list[Trial]) -> Setting:
        point, mix = divmod(place, len(self._mixes))
        crossed = self._mixes[mix]
        if how == "start":
            assert self.start is not None
            return {**self.start, **crossed}
        if how == "grid":
            return self.grid[place]
        if how == "tpe":
            own = int(sha256(f"{self.tune.seed} {self.name} {point}")[:8], 16)
            return learned(self.space, known, [trial.setting for trial in beside], own)
        space = {**self.space, **self.extended(known)} if how == "extended" else self.space
        # the same points for all rows, as far as they search the same
        return {**quasi_random(space, self.tune.seed, point), **crossed}
