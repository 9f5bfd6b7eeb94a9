"""SIGKILL at random moments, and just before or after a file gets its name.

Children are forked from a process that has everything imported already, so a kill costs the time
of the job and not that of starting Python.
"""

import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.hardening.jobs import Job


def in_child(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> int:
    """Fork; the child does the work and exits with 0, or prints why not and exits with 1."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        before()
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Wait; the exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at_rename(number: int, *, after: bool) -> None:
    """From now on, SIGKILL this process around its so many-th rename."""
    original, count = os.replace, 0

    def replace(*arguments: object, **named: object) -> None:
        nonlocal count
        count += 1
        if count == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        original(*arguments, **named)  # type: ignore[arg-type]
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace  # type: ignore[assignment]


def arm(death: tuple[str, float] | None) -> None:
    """In a child: prepare a death that comes from within."""
    if death is not None and death[0] != "time":
        die_at_rename(int(death[1]), after=death[0] == "after")


def leftovers(folder: Path) -> list[str]:
    """Temporary files that nobody will take away."""
    return [str(path) for path in folder.rglob("*") if path.name.endswith(".tmp")]


class Torment:
    """A job, killed again and again, that must end as if nothing had happened."""

    def __init__(self, job: Job, folder: Path, seed: int = 0) -> None:
        self.job, self.folder, self.random = job, folder, random.Random(seed)
        job.work(folder / "whole")  # in this process: what it imports, the children need not
        self.expected = job.outcome(folder / "whole")
        started = time.monotonic()
        job.work(folder / "again")
        self.seconds = time.monotonic() - started
        self.kills = self.completed = 0

    def __call__(self, kills: int) -> None:
        """Kill so many times; each time the job comes to its end, compare and begin afresh."""
        wanted = self.kills + kills
        parts = self.folder / "parts"
        while self.kills < wanted:
            deaths = [self._death() for _ in range(self.job.crew)]
            spared = self.random.randrange(self.job.crew + 1)  # one of a crew may survive
            if spared < self.job.crew and self.job.crew > 1:
                deaths[spared] = None
            if self._attempt(parts, deaths):
                self._compare(parts)
        self._attempt(parts, [None] * self.job.crew)
        self._compare(parts)

    def at_every_rename(self) -> None:
        """Kill once before and once after each rename of the whole job."""
        number, through = 0, False
        while not through:
            number += 1
            for when in ("before", "after"):
                through = self._attempt(self.folder / "parts", [(when, float(number))])
                self._attempt(self.folder / "parts", [None])
                self._compare(self.folder / "parts")

    def _death(self) -> tuple[str, float]:
        if self.random.random() < 0.4:
            kind = self.random.choice(["before", "after"])
            return kind, float(self.random.randint(1, 12))
        return "time", self.random.uniform(0.0, 0.8 * self.seconds)

    def _attempt(self, folder: Path, deaths: list[tuple[str, float] | None]) -> bool:
        """Whether the job was done when all its processes had ended."""
        children = []
        for death in deaths:
            children.append(in_child(lambda: self.job.work(folder), partial(arm, death)))
        started = time.monotonic()
        timed = [(d[1], c) for d, c in zip(deaths, children, strict=True) if d and d[0] == "time"]
        for seconds, child in sorted(timed):
            time.sleep(max(0.0, started + seconds - time.monotonic()))
            os.kill(child, signal.SIGKILL)  # not waited for yet, so the number is still its own
        codes = [ended(child) for child in children]
        assert all(code in (0, -signal.SIGKILL) for code in codes), (self.job.name, codes)
        killed = codes.count(-signal.SIGKILL)
        if any(deaths):
            self.kills += killed
        return killed < len(codes)

    def _compare(self, folder: Path) -> None:
        found = self.job.outcome(folder)
        assert found == self.expected, f"{self.job.name}: {_differs(found, self.expected)}"
        assert not leftovers(folder), leftovers(folder)
        self.completed += 1
        shutil.rmtree(folder)


def _differs(found: Any, expected: Any) -> str:
    """Where two outcomes differ."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        parts = [
            f"{k}: {_differs(found[k], expected[k])}" for k in found if found[k] != expected[k]
        ]
        return "; ".join(parts)
    return f"{found!r:.300} instead of {expected!r:.300}"
