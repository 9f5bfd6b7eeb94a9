"""One process that times recipes: `python -m simgrad.choosing.timing JOB.json`.

The job names the recipes, one after the other; the paces so far, or an error, stand beside it
(`JOB.found`). A file, because what a user's own file prints must not get between.
"""

import itertools
import math
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simgrad.choosing.probe import FOUND, Pace
from simgrad.core.errors import InputError
from simgrad.core.extras import import_file
from simgrad.core.files import read_json, write_json
from simgrad.runs.recipe import Recipe, from_dict
from simgrad.runs.run import Run
from simgrad.studies.worker import attend
from simgrad.training.rounds import train
from simgrad.training.sitting import politely, stop_asked

_NEVER = 1_000_000_000  # epochs or steps: longer than any probe
_shared: dict[Any, Any] = {}  # what this process has read, for its next recipe


def _times(recipe: Recipe, files: list[str], seconds: float) -> Pace:
    """Some steps with a look at the validation split after each, then some without."""
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


def _time_all(job: dict[str, Any], place: Path) -> None:
    """The pace of each recipe; the first is timed in any case, others until it is too late."""
    found: dict[str, Any] = {}
    late = math.inf
    for name, values in job["recipes"]:
        if time.time() > late or stop_asked():
            break
        pace = _times(from_dict(values, "recipe"), job["files"], job["seconds"])
        found[name] = asdict(pace)
        write_json(place, {"paces": found})
        late = job["late"]


def main() -> None:
    """Entry point of a process that times."""
    attend()
    job = Path(sys.argv[1])
    place = job.with_suffix(FOUND)
    try:
        with politely():
            _time_all(read_json(job), place)
    except InputError as error:
        write_json(place, {"error": str(error)})


if __name__ == "__main__":
    main()
