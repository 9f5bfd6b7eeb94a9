"""How long is a full training? One run shows it: where validation stops improving.

The pilot trains the first objective until validation has not improved for some evaluations, at the
lowest rate that is searched. Objectives that start slowly need about as long at their own rates: on
300 photos nt-xent was best after 25 steps at 2e-3 and after 300 at 2e-4, triplet-sh after 150 to
275 at any. A full training has this length at one rate, and half as much again at a tenth of it.
Nothing else of the pilot is used.
"""

import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from simgrad.choosing.probe import Pace
from simgrad.choosing.sizing import seconds_of, sizes
from simgrad.core.console import say
from simgrad.core.threads import free, pinned
from simgrad.runs.recipe import Recipe, differing
from simgrad.runs.run import RECIPE, Run
from simgrad.training.rounds import train
from simgrad.training.sitting import stop_asked
from simgrad.training.trouble import TrainingError

PILOT = "pilot"  # its folder
_PATIENCE = 5  # evaluations without improvement
_STEPS = (50, 500)  # between evaluations: an epoch, within these bounds
_NEVER = 1_000_000
_SECONDS = 5.0  # between two lines, or more
_AT_FULL_RATE = 2 / 3  # of a full training


def full_length(
    recipe: Recipe, steps_per_epoch: int, folder: Path, seconds: float, quiet: bool = False
) -> int | None:
    """Epochs of a full training; None where validation still improves when the time is over."""
    endless = recipe.replace(
        validation_only=True,
        epochs=_NEVER,
        decay_every=_NEVER,
        first_epochs=0,
        threads=pinned() or free(),
        early_stop=_PATIENCE,
        evaluate_every=_between(steps_per_epoch),
    )
    if not quiet:
        say(f"a pilot of {recipe.objective}: when does validation stop improving? ...", stderr=True)
    begun = Run(folder / PILOT)
    if (begun.path / RECIPE).is_file() and differing(begun.recipe, endless.settled()):
        shutil.rmtree(begun.path)  # of another model, say: nothing was decided by it
    try:
        log = None if quiet else _Told(steps_per_epoch)
        run = train(endless, begun.path, quiet=True, stop_after=seconds, log=log)
    except TrainingError:  # it diverged
        return None
    if stop_asked():
        raise KeyboardInterrupt
    if not run.finished:
        return None
    return length_of(run.info["best"]["step"], steps_per_epoch)


class _Told:
    """A line now and then: how far a pilot is, and what it has reached."""

    def __init__(self, steps_per_epoch: int) -> None:
        self.steps, self.last = steps_per_epoch, time.monotonic()

    def __call__(self, step: int, figures: Mapping[str, float]) -> None:
        if time.monotonic() - self.last >= _SECONDS and "val/rsum" in figures:
            self.last = time.monotonic()
            epoch, rsum = step / self.steps, figures["val/rsum"]
            say(f"  epoch {epoch:.0f}: validation rsum {rsum:.1f}", stderr=True)


def least_seconds(paces: Mapping[str, Pace], steps_per_epoch: int, crew: int) -> float:
    """Of the shortest pilot that ends, and the smallest comparison of two that it could lead to."""
    between = _between(steps_per_epoch)
    two = dict(list(paces.items())[:2])
    looks = 1 + _PATIENCE
    pilot = paces[next(iter(paces))].seconds(looks * between, looks)
    smallest = sizes(steps_per_epoch, length_of(between, steps_per_epoch))[0]
    return pilot + seconds_of(smallest, two, steps_per_epoch, crew)


def _between(steps_per_epoch: int) -> int:
    """Steps from one look at the validation split to the next."""
    low, high = _STEPS
    return min(high, max(low, steps_per_epoch))


def length_of(best_step: int, steps_per_epoch: int) -> int:
    """Epochs of a full training that reaches a step before its rate falls."""
    return max(2, math.ceil(best_step / steps_per_epoch / _AT_FULL_RATE))
