"""What a person sees of a run in progress: a live bar on a terminal, lines in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from simgrad.core.console import progress, say
from simgrad.evaluation import metric_of
from simgrad.runs.recipe import Recipe

# Below this share of one core, for at least so many seconds, a run is slow for reasons not its own.
_POOR, _LONG = 0.7, 10.0


class Display:
    """Shows loss, validation, speed and time left."""

    def __init__(self, recipe: Recipe, quiet: bool) -> None:
        self.recipe, self.quiet = recipe, quiet
        self.bar: Any = None
        self.task: Any = None
        self.samples, self.since, self.worked = 0, time.monotonic(), time.process_time()
        self.steps = 0
        self.warned = False
        self.shown = 0.0
        self.validation = ""
        self.epochs = 0
        self._first = 0 if recipe.first_objective is None else recipe.first_epochs

    @contextmanager
    def showing(self, epochs: int) -> Iterator[None]:
        """The bar, during training."""
        self.epochs = epochs
        self.since, self.worked = time.monotonic(), time.process_time()
        if self.quiet or not sys.stderr.isatty():
            yield
            return

        with progress() as self.bar:
            self.task = self.bar.add_task(self.recipe.objective, total=epochs)
            yield
        self.bar = None

    def step(self, epoch: int, part: float, loss: Tensor, samples: int) -> None:
        """After every step; looks at the loss only a few times a second."""
        self.samples, self.steps = self.samples + samples, self.steps + 1
        now = time.monotonic()
        if self.bar is not None and now - self.shown > 0.3:
            self.shown = now
            name = self.recipe.first_objective if epoch < self._first else self.recipe.objective
            text = f"{name}  loss {float(loss):.4g}{self.validation}"
            text += f"  {self.speed():,.0f}/s"
            self.bar.update(self.task, completed=epoch + part, description=text)

    def speed(self) -> float:
        """Captions trained on per second since the last evaluation."""
        return self.samples / max(1e-6, time.monotonic() - self.since)

    def batch_seconds(self) -> float | None:
        """Seconds of a batch of training since the last evaluation; None before the first step."""
        return (time.monotonic() - self.since) / self.steps if self.steps else None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Something that is no training, and does not count as its time."""
        begun = time.monotonic()
        yield
        self.since += time.monotonic() - begun

    def evaluated(self, entry: dict[str, Any], on_cpu: bool) -> None:
        """After every evaluation."""
        if on_cpu:
            self._look_at_share()
        value = entry["val"].get(self.recipe.select, float("nan"))
        told = f"{self.recipe.select} {metric_of(self.recipe.select).format(value)}"
        self.validation = f"  {told}"
        if self.bar is None:
            first = self._first > 0 and entry["epoch"] <= self._first
            name = f" ({self.recipe.first_objective})" if first else ""
            self.say(
                f"epoch {entry['epoch']:g}/{self.epochs}{name}  step {entry['step']}  "
                f"loss {entry['loss']:.4g}  {told}  "
                f"{entry['samples_per_second']:,.0f} captions/s"
            )
        self.samples, self.since, self.worked = 0, time.monotonic(), time.process_time()
        self.steps = 0

    def _look_at_share(self) -> None:
        """Say once that others use the machine, where that makes a run slow."""
        seconds = time.monotonic() - self.since
        share = (time.process_time() - self.worked) / max(1e-6, seconds)
        if share < _POOR and seconds > _LONG and not self.warned:
            self.warned = True
            self.say(
                f"this run gets {100 * share:.0f} % of one core: the machine is busy with other "
                "work, or waits for its disk."
            )

    def say(self, text: str) -> None:
        """One line for people."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(text)
        else:
            say(text, stderr=True)
