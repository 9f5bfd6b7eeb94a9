"""One sitting at a run: its lock, its threads, its memory, and how it is asked to stop."""

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from simgrad.core.files import lock
from simgrad.core.products import float32_products
from simgrad.core.threads import fewer, threads
from simgrad.data.base import Dataset
from simgrad.retriever.prepare import prepare
from simgrad.runs import run
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import LOCK, Run
from simgrad.training import distributed, grouped, state
from simgrad.training.graph import give_back, own_stream
from simgrad.training.loggers import Log
from simgrad.training.loop import Training
from simgrad.training.records import claim
from simgrad.training.stopping import Stopping, politely
from simgrad.training.trouble import naming_lack_of_memory


def train_round(
    recipe: Recipe,
    folder: str | Path,
    *,
    dataset: Dataset | None = None,
    quiet: bool = False,
    stop_after: float | None = None,
    shared: dict[Any, Any] | None = None,
    log: Log | None = None,
) -> Run:
    """Train in `folder`, or resume there; a finished run is returned as it is.

    `stop_after` stops the run after this many seconds, ready to be resumed. Runs side by side in
    one process share what they read through `shared`.
    """
    folder = Path(folder)
    with distributed.together():
        chief = distributed.rank() == 0
        held = lock(folder / LOCK, wait=False, what=f"the run {folder}")
        with held if chief else nullcontext():
            if chief:
                claim(recipe, folder, dataset)
            distributed.wait()
            if Run(folder).finished:
                if chief:
                    state.forget(folder / run.LAST)  # a kill may have come before that
                return Run(folder)
            with threads(Run(folder).threads or recipe.threads):
                _go_on(recipe, folder, dataset, quiet, Stopping(stop_after), shared, log)
            give_back()  # captured steps above all: others are waiting for memory
            distributed.wait()
    return Run(folder)


def _go_on(
    recipe: Recipe,
    folder: Path,
    dataset: Dataset | None,
    quiet: bool,
    asked_to_stop: Stopping,
    shared: dict[Any, Any] | None,
    log: Log | None,
) -> None:
    training: Training | None = None
    with (
        float32_products(coarse=recipe.precision == "tf32"),
        naming_lack_of_memory(recipe, lambda: training.progress.step if training else 0),
    ):
        retriever = prepare(recipe, dataset, shared)
        training = Training(recipe, folder, retriever, quiet, log)
        told = _about_threads(recipe, Run(folder))
        if told is not None and retriever.device.type == "cpu":
            training.display.say(told)
        with politely(), own_stream(retriever.device), closing(training.records):
            try:
                training.go(asked_to_stop)
            finally:
                grouped.leave()  # others wait for its steps no more


def _about_threads(recipe: Recipe, begun: Run) -> str | None:
    """Where the number of threads may surprise: what it is, and why."""
    before = begun.threads
    if before is None:
        return fewer() if recipe.threads is None else None
    if recipe.threads in (None, before):
        return None
    return f"this run began with --threads {before} and keeps to that: sums depend on it."
