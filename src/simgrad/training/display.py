"""What a person sees of a run in progress: a live bar on a terminal, lines in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from simgrad.core.console import progress, say
from simgrad.runs.recipe import Recipe


class Display:
    """Shows loss, validation, speed and time left."""

    def __init__(self, recipe: Recipe, quiet: bool) -> None:
        self.recipe, self.quiet = recipe, quiet
        self.bar: Any = None
        self.task: Any = None
        self.samples, self.since = 0, time.monotonic()
        self.shown = 0.0
        self.validation = ""
        self.epochs = 0

    @contextmanager
    def showing(self, epochs: int) -> Iterator[None]:
        """The bar, while training goes on."""
        self.epochs = epochs
        self.since = time.monotonic()
        if self.quiet or not sys.stderr.isatty():
            yield
            return

        with progress() as self.bar:
            self.task = self.bar.add_task(self.recipe.objective, total=epochs)
            yield
        self.bar = None

    def step(self, epoch: int, part: float, loss: Tensor, samples: int) -> None:
        """After every step; looks at the loss only a few times a second."""
        self.samples += samples
        now = time.monotonic()
        if self.bar is not None and now - self.shown > 0.3:
            self.shown = now
            text = f"{self.recipe.objective}  loss {float(loss):.4g}{self.validation}"
            text += f"  {self.speed():,.0f}/s"
            self.bar.update(self.task, completed=epoch + part, description=text)

    def speed(self) -> float:
        """Captions per second since the last evaluation."""
        return self.samples / max(1e-6, time.monotonic() - self.since)

    def evaluated(self, entry: dict[str, Any]) -> None:
        """After every evaluation."""
        value = entry["val"].get(self.recipe.select, float("nan"))
        self.validation = f"  {self.recipe.select} {value:.1f}"
        if self.bar is None:
            self.say(
                f"epoch {entry['epoch']:g}/{self.epochs}  step {entry['step']}  "
                f"loss {entry['loss']:.4g}  {self.recipe.select} {value:.1f}  "
                f"{entry['samples_per_second']:,.0f} captions/s"
            )
        self.samples, self.since = 0, time.monotonic()

    def say(self, text: str) -> None:
        """One line for people."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.console.print(text)
        else:
            say(text, stderr=True)
