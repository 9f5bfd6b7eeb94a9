"""One worker of a study: takes a run nobody is working on, trains it, takes the next.

Several workers, started by one command or by many, on one machine or on several with a shared
disk, take turns by locking run folders; a lock dies with its holder, so nothing is lost or done
twice.

    python -m simgrad.studies.worker STUDY [attended] [RUNS]

RUNS: how many at a time. `attended`: stop, as for a signal, when standard input ends; that is, when
the command that started the worker is gone, however it ended.
"""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simgrad.core.console import say
from simgrad.core.errors import Busy, InputError, OutOfMemory
from simgrad.core.extras import import_extras
from simgrad.core.files import held, seems_held
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import LAST, LOCK, Run, write_info
from simgrad.studies.study import Study
from simgrad.studies.trials import Trials
from simgrad.training.graph import give_back
from simgrad.training.grouped import RunGroups, together
from simgrad.training.optimizing import total_epochs
from simgrad.training.rounds import train
from simgrad.training.sitting import ask_to_stop, politely, stop_asked
from simgrad.training.state import remembered
from simgrad.training.trouble import TrainingError, lacks_memory

_PATIENCE = 0.5  # seconds between two looks at a run that another process works on


def work(
    study: Study,
    log: Callable[[str], None] | None = None,
    shared: dict[Any, Any] | None = None,
    number: int = 0,
    start: float | None = None,
) -> int:
    """Train what is left of a study; how many runs failed. Of a tuned one the trials come first.

    `shared`: what was read before, for all runs. `number`: of workers that begin together, which
    one this is; each begins with another run. `start`: of runs that train together, with which
    replicate of a tuned study their search begins, as a share of all.
    """
    shared = {} if shared is None else shared
    with politely():
        failed = _search(study, shared, log, start)
        return failed if stop_asked() else failed + _train_all(study, shared, log, number)


def work_together(
    study: Study,
    count: int,
    shared: dict[Any, Any] | None = None,
    number: int = 0,
    processes: int = 1,
) -> int:
    """The same with so many runs at a time, in threads: they take their steps together.

    Only runs on the same data can: each of the processes begins with another replicate.
    """
    if count == 1:
        return work(study, shared=shared, number=number)
    groups, read, failed = RunGroups(count), {} if shared is None else shared, []
    start = number / processes

    def one(place: int) -> None:
        try:
            with together(groups):
                own, first = Study.open(study.path), number * count + place
                failed.append(work(own, shared=read, number=first, start=start))
        except Exception:
            say(traceback.format_exc(), stderr=True)
            failed.append(1)

    threads = [threading.Thread(target=one, args=(place,)) for place in range(count)]
    with politely():
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # signals are heard between
    return sum(failed)


def _search(
    study: Study, shared: dict[Any, Any], log: Callable[[str], None] | None, start: float | None
) -> int:
    """Try settings until every row has one; how many rows have none."""
    if not study.tunings:
        return 0

    def one(path: Path, recipe: Recipe) -> Exception | None:
        return _train(path, recipe, shared, study.round_one(recipe))

    def ready() -> bool:
        """A run of a row whose setting is chosen, while other rows are still searched."""
        for path, recipe in study.jobs():
            if Run(path).info.get("status") in ("waiting", "stopped") and not held(path / LOCK):
                return one(path, recipe) is None
        return False

    trials = Trials(study.tunings, one, ready, start or 0.0, in_turn=start is None)
    trials.work(log)
    return sum(tuning.record is None for tuning in study.tunings)


def _train_all(
    study: Study, shared: dict[Any, Any], log: Callable[[str], None] | None, number: int
) -> int:
    """Train the runs of the table; how many failed."""
    jobs = [job for job in study.jobs() if not _through(job[0])]
    first = number % max(1, len(jobs))
    jobs = jobs[first:] + jobs[:first]
    pace = _Pace(study)
    failed: list[str] = []
    # Runs that waited for another process, their own or the first of two rounds: as they were then.
    taken: dict[Path, dict[str, Any]] = {}
    crowded: set[Path] = set()  # runs that found no room on the GPU
    while jobs and not stop_asked():
        # Nobody waits for a long run at the end; what could not be had waits for all else.
        pace.look()
        back = taken.keys() | crowded
        folder, recipe = max(
            jobs,
            key=lambda job: (
                job[0] not in back,
                # To try a run that another process has takes 40 ms, and there may be many.
                not seems_held(job[0] / LOCK),
                *pace.of(job[1]),
            ),
        )
        jobs.remove((folder, recipe))
        before, now = taken.pop(folder, None), Run(folder).info
        if before is not None:
            if now.get("status") == "failed" and now != before:  # there, and noted there
                continue
            if _through(folder):  # there: no reason to wait
                continue
            time.sleep(_PATIENCE)
        problem = _train(folder, recipe, shared, study.round_one(recipe))
        if isinstance(problem, Busy):
            # Come back when all else is done: whoever has it may be killed.
            taken[folder] = now
            jobs.append((folder, recipe))
            continue
        if isinstance(problem, OutOfMemory) and folder not in crowded:
            # Others may have held it: once more, when they are through with theirs.
            crowded.add(folder)
            jobs.append((folder, recipe))
            continue
        if problem is not None:
            failed.append(folder.name)
        if log is not None:
            log(f"{folder.name}: {problem or Run(folder).info.get('status')}")
    return len(failed)


class _Pace:
    """How long the runs of a row take, from those that are finished."""

    def __init__(self, study: Study) -> None:
        self.open = dict(study.jobs())
        self.seconds: dict[str, float] = {}

    def look(self) -> None:
        """What has been finished since, here or by others."""
        for folder in list(self.open):
            info = Run(folder).info
            if info.get("status") == "finished":
                self.seconds[_row(self.open.pop(folder))] = info.get("seconds", 0.0)

    def of(self, recipe: Recipe) -> tuple[bool, float]:
        """The larger, the sooner it should begin; a row of which nothing is known comes first."""
        known = self.seconds.get(_row(recipe))
        return (True, total_epochs(recipe)) if known is None else (False, known)


def _row(recipe: Recipe) -> str:
    return repr({**recipe.to_dict(), "seed": None})


def _through(folder: Path) -> bool:
    """Finished, and its last checkpoint is gone: a kill may have come between the two."""
    return Run(folder).finished and not remembered(folder / LAST)


def _train(
    folder: Path, recipe: Recipe, shared: dict[Any, Any], round_one: Path | None = None
) -> Exception | None:
    """Train one run; what went wrong, if anything did."""
    try:
        train(recipe, folder, quiet=True, shared=shared, round_one=round_one)
    except Busy as error:  # nothing was begun: no memory to look for, which takes a while
        return _bare(error)
    except InputError as error:
        _note_failure(folder, str(error), diverged=isinstance(error, TrainingError))
        problem: Exception = _bare(error)
    except Exception as error:  # one broken run must not take the others with it
        trace = traceback.format_exc()
        say(trace, stderr=True)
        _note_failure(folder, trace)
        problem = OutOfMemory(str(error)) if lacks_memory(error) else _bare(error)
    else:
        return None
    give_back()  # as long as the error was on its way, it held what the run held
    return problem


def _bare(error: Exception) -> Exception:
    """The error without what led to it, which would hold all that the run held."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def _note_failure(folder: Path, text: str, diverged: bool = False) -> None:
    """Leave the reason in run.json, where the table and the report find it."""
    with contextlib.suppress(OSError):
        try:
            info = Run(folder).info
        except InputError:  # damaged: the reason counts
            info = {}
        write_info(folder, {**info, "status": "failed", "error": text, "diverged": diverged})


def _until_alone() -> None:
    # Nothing is ever written: it returns when the other end is closed. Not by `sys.stdin`, whose
    # lock, held while it waits, would end this process with a fatal error.
    os.read(0, 1)
    ask_to_stop()


def attend() -> None:
    """Stop, as for a signal, when standard input ends."""
    threading.Thread(target=_until_alone, daemon=True).start()


def main() -> None:
    """Entry point of a worker process."""

    import_extras()
    options = sys.argv[2:]
    if "attended" in options:
        attend()
    count = next((int(option) for option in options if option.isdigit()), 1)
    sys.exit(1 if work_together(Study.open(sys.argv[1]), count) else 0)


if __name__ == "__main__":
    main()
