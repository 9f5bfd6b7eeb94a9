"""How long training takes here: measured for some seconds, as it will be in a study.

As many processes as the study will have train side by side, each with its share of the cores: alone
on the machine, a run would look quicker than it will be.
"""

import itertools
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.children import SAFE_PATH, deaf
from simgrad.core.extras import import_file, imported
from simgrad.core.threads import settle
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.sharing import shared_gpu
from simgrad.training.rounds import train

_NEVER = 1_000_000_000  # epochs or steps: longer than any probe


@dataclass(frozen=True)
class Pace:
    """Seconds of one process that works beside the others."""

    step: float  # one update
    evaluation: float  # one look at the validation split
    start: float  # until the first step of a process; later runs share what it has read

    def seconds(self, steps: int, evaluations: int) -> float:
        """Of one run."""
        return steps * self.step + evaluations * self.evaluation


def measure(
    recipes: Mapping[str, Recipe],
    processes: int,
    cores: int,
    seconds: float,
    on_gpu: bool = False,
    within: float = math.inf,
    report: Callable[[int, int | None], None] | None = None,
) -> dict[str, Pace]:
    """The pace of each recipe, with a number of processes side by side and `cores` for each.

    Each process times one recipe at least. After `within` seconds none is begun, and those that
    were not timed are missing.
    """
    names = list(recipes)
    count = processes * math.ceil(len(names) / processes)  # all processes are busy, as in a study
    jobs = [names[i % len(names)] for i in range(count)]
    files = [file["path"] for file in imported()]
    before, late = dict(os.environ), time.time() + within
    settle(os.environ, cores)  # read by the new processes when they load torch
    try:
        context = multiprocessing.get_context("spawn")
        with shared_gpu(on_gpu and processes > 1) as service:
            os.environ.update(service | SAFE_PATH)
            with ProcessPoolExecutor(processes, mp_context=context) as crew:
                with deaf():
                    asked = [
                        crew.submit(
                            _probe,
                            recipes[name],
                            files,
                            seconds,
                            math.inf if i < processes else late,
                        )
                        for i, name in enumerate(jobs)
                    ]
                try:
                    found = []
                    for done, one in enumerate(asked, 1):
                        found.append(one.result())
                        if report is not None:
                            report(min(done, len(names)), len(names))
                except KeyboardInterrupt:
                    for process in crew._processes.values():
                        process.terminate()  # else this one waits until they have finished
                    raise
    finally:
        os.environ.clear()
        os.environ.update(before)
    paces: dict[str, Pace] = {}
    for name in names:
        own = [pace for job, pace in zip(jobs, found, strict=True) if job == name and pace]
        if not own:
            continue
        paces[name] = Pace(
            statistics.mean(pace.step for pace in own),
            statistics.mean(pace.evaluation for pace in own),
            max(pace.start for pace in own),
        )
    return paces


_shared: dict[Any, Any] = {}  # what a process has read, for its next probe


def _probe(recipe: Recipe, files: list[str], seconds: float, late: float) -> Pace | None:
    """Some steps with a look at the validation split after each, then some without.

    None: it is too late for that (`late`, as time.time() has it).
    """
    if time.time() > late:
        return None
    begun = time.monotonic()
    for file in files:
        import_file(Path(file))
    with tempfile.TemporaryDirectory() as folder:
        quick = recipe.replace(
            validation_only=True, first_epochs=0, checkpoint_seconds=float(_NEVER)
        )
        endless = quick.replace(epochs=_NEVER, decay_every=_NEVER, evaluate_every=_NEVER)
        looking = endless.replace(evaluate_every=1)
        _run(looking, Path(folder) / "first", 0.0)  # what is read and imported once
        start = time.monotonic() - begun
        looks = _run(looking, Path(folder) / "looks", seconds / 2).history
        steps = _run(endless, Path(folder) / "steps", seconds / 2).info
        both = _between([entry["seconds"] for entry in looks])
        # The first step is slow: where there was time for a few only, it counts too much.
        step = min(both, steps["seconds"] / max(1, steps["steps"]))
        return Pace(step, both - step, start)


def _between(moments: list[float]) -> float:
    """Seconds between two of them, as a rule."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    return statistics.median(gaps) if gaps else moments[0]


def _run(recipe: Recipe, folder: Path, seconds: float) -> Run:
    return train(recipe, folder, quiet=True, stop_after=seconds, shared=_shared)
