"""What a person sees of a study at work: on a terminal one screen, in a log a line now and then.

How much is done of all, the best validation score of each row so far, and about how long the rest
takes. All of it is read from the folder, whoever works on it, on whatever machine.
"""

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from simgrad.core.console import SECONDS_BETWEEN_LINES, as_text, console, say
from simgrad.core.text import duration
from simgrad.evaluation import metric_of
from simgrad.runs.environment import host
from simgrad.runs.outcome import has_diverged
from simgrad.runs.run import Run
from simgrad.studies.space import printed
from simgrad.studies.study import Study
from simgrad.studies.tuned import TRIALS, validation_of
from simgrad.training.optimizing import total_epochs

_BAR = 40  # columns


class Screen:
    """What stands on the terminal now; gone when the work is over."""

    def __init__(self, live: Live) -> None:
        self.live = live

    def show(
        self, words: str, share: float, head: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        """The first column is left-aligned, and gives way where the terminal is narrow."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(as_text(head[0]), no_wrap=True, overflow="ellipsis")
        for name in head[1:]:
            table.add_column(as_text(name), justify="right", no_wrap=True, overflow="crop")
        for row in rows:
            table.add_row(*map(as_text, row))
        full = round(_BAR * min(1.0, share))
        bar = Text("━" * full, "green") + Text("━" * (_BAR - full), "bright_black")
        self.live.update(Group(as_text(words), bar, "", table), refresh=True)


@contextmanager
def screen() -> Iterator[Screen | None]:
    """On standard error, so that a pipe gets the result alone; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    out = console(stderr=True)
    with Live(console=out, transient=True, auto_refresh=False, redirect_stdout=False) as live:
        yield Screen(live)


_PAUSE = 0.5  # seconds between two looks
_TRIAL = re.compile(r"(?P<row>.+)-t\d+(?P<again>-r\d+)?")  # a folder's name


def watch(study: Study, busy: Callable[[], bool], quiet: bool) -> None:
    """Show progress until nobody works any more."""
    if quiet:
        while busy():
            time.sleep(_PAUSE)
        return
    progress = StudyProgress(study)
    with screen() as shown:
        told = None if shown else StudyLog(progress)
        while True:
            working = busy()
            progress.look()
            if shown:
                show(progress, shown)
            if told:
                told.tell()
            if not working:
                return
            time.sleep(_PAUSE)


@dataclass
class Seen:
    """How far a row has come."""

    epochs: int  # of a training
    tried: int = 0  # settings
    to_try: int = 0
    best: float | None = None  # validation score of a training that is over
    tested: int = 0  # runs of the table
    to_test: int = 0


class StudyProgress:
    """How far a study has come, by its folder. What is over is read once."""

    def __init__(self, study: Study) -> None:
        self.study, self.begun = study, time.monotonic()
        plan = study.plan
        rows = [row for row in plan.rows if not row.ensemble]
        self.epochs = {row.label: total_epochs(plan.recipe(row, 0)) for row in rows}
        self.runs = {path: row.label for row in rows for path in study.folders(row)}
        self.searches = {t.name: row.label for row in rows for t in study.tunings_of(row)}
        self.select = (plan.tune and plan.tune.select) or plan.base.select
        self.metric = metric_of(self.select)
        self.over: dict[Path, float | None] = {}  # trainings; a score where there is one
        self.records: dict[str, dict[str, Any]] = {}  # of searches that are over
        self.look()
        self.before = self.done

    def look(self) -> None:
        """Read what has changed."""
        self.rows = {label: Seen(epochs) for label, epochs in self.epochs.items()}
        self.done, self.total = 0.0, 0  # trainings
        for tuning in self.study.tunings:
            self._count(tuning.name, tuning.tune, tuning.record)
        folder = self.study.path / TRIALS
        for path in folder.iterdir() if folder.is_dir() else ():
            found = _TRIAL.fullmatch(path.name)
            if found and found["row"] in self.searches:
                seen = self.rows[self.searches[found["row"]]]
                whole = self._training(path, seen)
                if found["row"] not in self.records:
                    seen.tried += whole and not found["again"]
        for path, label in self.runs.items():
            seen = self.rows[label]
            self.total += 1
            seen.to_test += 1
            seen.tested += self._training(path, seen)

    def _count(self, name: str, tune: Any, record: dict[str, Any] | None) -> None:
        """The settings of a search, and its trainings."""
        seen = self.rows[self.searches[name]]
        if record is None:
            seen.to_try += tune.trials
            self.total += tune.trainings
            return
        self.records[name] = record
        tried = record["tried"]
        seen.tried, seen.to_try = seen.tried + len(tried), seen.to_try + len(tried)
        self.total += len(tried) + sum(len(one.get("repeats", ())) for one in tried)

    def _training(self, path: Path, seen: Seen) -> bool:
        """Count one; whether it is over."""
        if path not in self.over:
            run = Run(path)
            if not run.finished and not has_diverged(run):
                history = run.history
                at = history[-1]["epoch"] if history else 0
                self.done += min(0.99, at / max(1, seen.epochs))
                return False
            self.over[path] = run.info.get("best", {}).get(self.select)
        self.done += 1
        score = self.over[path]
        if score is not None and math.isfinite(score):
            seen.best = score if seen.best is None else self.metric.best((seen.best, score))
        return True

    @property
    def seconds_left(self) -> float | None:
        """About; None before anything shows how long it takes."""
        gained = self.done - self.before
        if gained <= 0:
            return None
        return (time.monotonic() - self.begun) * max(0.0, self.total - self.done) / gained

    def summary(self) -> str:
        """17 of 60 trainings, about 4 min left"""
        left = self.seconds_left
        more = "" if left is None else f", about {duration(left)} left"
        return f"{len(self.over)} of {self.total} trainings{more}"


def show(progress: StudyProgress, shown: Screen) -> None:
    """All rows in place, for a terminal."""
    searched = bool(progress.searches)
    score = progress.metric.heading
    head = ["", f"best {score}\non val", "tests" if searched else "runs"]
    if searched:
        head.insert(1, "settings")
    rows = []
    for label, seen in progress.rows.items():
        best = "–" if seen.best is None else progress.metric.format(seen.best)
        tried = [f"{seen.tried} of {seen.to_try}"] if searched else []
        rows.append([label, *tried, best, f"{seen.tested} of {seen.to_test}"])
    words = f"{progress.study.title[:60]}\n{progress.summary()}"
    shown.show(words, progress.done / max(1, progress.total), head, rows)


class StudyLog:
    """Lines for a log: each setting that was chosen, each run of the table, and a summary where
    nothing was said for a while."""

    def __init__(self, progress: StudyProgress) -> None:
        self.progress = progress
        self.chosen = set(progress.records)
        self.tested = {path for path in progress.runs if path in progress.over}
        self.told = time.monotonic()

    def tell(self) -> None:
        """What is new."""
        lines = [*self._choices(), *self._tests()]
        if not lines and time.monotonic() - self.told >= SECONDS_BETWEEN_LINES:
            lines = [f"{self.progress.summary()}{self._best()}"]
        if lines:
            self.told = time.monotonic()
            say(*lines, stderr=True)

    def _choices(self) -> list[str]:
        new = {name: r for name, r in self.progress.records.items() if name not in self.chosen}
        self.chosen |= set(new)
        return [
            f"{name}: {record['budget']['trials']} trials, {printed(best['setting'])}  "
            f"validation {validation_of(best):.1f}"
            for name, record in new.items()
            if (best := record["chosen"])
        ]

    def _tests(self) -> list[str]:
        lines = []
        for path in self.progress.runs:
            if path in self.progress.over and path not in self.tested:
                self.tested.add(path)
                run = Run(path)
                value = run.test.get("rsum")
                score = "" if value is None else f"  test rsum {value:.1f}"
                count = f"[{len(self.tested)}/{len(self.progress.runs)}]"
                places = run.info.get("hosts", [])  # more than one: a machine was lost
                where = f"  on {', then '.join(places)}" if set(places) - {host()} else ""
                seconds = run.info.get("seconds", 0)
                lines.append(f"{count} {run.name}{score}  {seconds:.0f} s{where}")
        return lines

    def _best(self) -> str:
        """; best rsum on val: nt-xent 233.1, triplet-sh 228.0"""
        metric = self.progress.metric
        known = [
            f"{label} {metric.format(seen.best)}"
            for label, seen in self.progress.rows.items()
            if seen.best is not None
        ]
        return f"; best {metric.heading} on val: {', '.join(known)}" if known else ""
