"""How long training takes here: measured for some seconds, as it will be in a study.

As many processes as the study will have train side by side, each with its share of the cores: alone
on the machine, a run would look quicker than it will be.
"""

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.children import python
from simgrad.core.errors import InputError
from simgrad.core.extras import imported
from simgrad.core.files import read_json, write_json
from simgrad.core.threads import settle
from simgrad.runs.recipe import Recipe
from simgrad.studies.engine import shared_gpu

FOUND = ".found"  # of the file in which a process says what it has timed
_LOOK = 0.2  # seconds between looks at them


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
    report: Callable[[int, int | None], None] = lambda done, total: None,
) -> dict[str, Pace]:
    """The pace of each recipe, with a number of processes side by side and `cores` for each.

    Each process times one recipe at least. After `within` seconds none is begun, and those that
    were not timed are missing. `report` is told how many are timed, of how many.
    """
    names = list(recipes)
    count = processes * math.ceil(len(names) / processes)  # all processes are busy, as in a study
    turns = [names[i % len(names)] for i in range(count)]
    job = {
        "files": [file["path"] for file in imported()],
        "seconds": seconds,
        "late": min(time.time() + within, sys.float_info.max),
    }
    environment = dict(os.environ)
    settle(environment, cores)  # read by the new processes when they load torch
    with (
        tempfile.TemporaryDirectory(prefix="simgrad-timing-") as place,
        shared_gpu(on_gpu and processes > 1) as service,
    ):
        files = [Path(place) / f"{number}.json" for number in range(processes)]
        for number, file in enumerate(files):
            own = [(name, recipes[name].to_dict()) for name in turns[number::processes]]
            write_json(file, {**job, "recipes": own})
        found = _timed(files, {**environment, **service}, lambda done: report(done, count))
    paces: dict[str, Pace] = {}
    for name in names:
        several = [Pace(**one[name]) for one in found if name in one]
        if not several:
            continue
        paces[name] = Pace(
            statistics.mean(pace.step for pace in several),
            statistics.mean(pace.evaluation for pace in several),
            max(pace.start for pace in several),
        )
    return paces


def _timed(
    jobs: Sequence[Path], environment: dict[str, str], report: Callable[[int], None]
) -> list[dict[str, Any]]:
    """What processes find, one for each job. They end with this one: it holds their input open."""
    crew = []
    try:
        for job in jobs:
            words = python("simgrad.choosing.timing", str(job))
            crew.append(
                subprocess.Popen(
                    words,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for whoever asked
                )
            )
        while any(one.poll() is None for one in crew):
            report(sum(len(_so_far(job).get("paces", ())) for job in jobs))
            time.sleep(_LOOK)
    finally:
        for one in crew:
            one.kill()
            one.wait()
    return [_paces(job, one.returncode) for job, one in zip(jobs, crew, strict=True)]


def _so_far(job: Path) -> dict[str, Any]:
    file = job.with_suffix(FOUND)
    return read_json(file) if file.is_file() else {}


def _paces(job: Path, code: int) -> dict[str, Any]:
    found = _so_far(job)
    if code or not found:
        raise InputError(
            f"a process that times training ended without an answer (status {code}): what it "
            "printed stands above; -9 means that it was killed, as a rule for lack of memory."
        )
    if "error" in found:
        raise InputError(found["error"])
    paces: dict[str, Any] = found["paces"]
    return paces
