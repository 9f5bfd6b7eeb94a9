"""One sitting at a run: its lock, threads, memory and precision, and how it is asked to stop."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from simgrad.core.files import lock
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
from simgrad.training.trouble import naming_lack_of_memory

_changed = threading.Condition()
_users: list[bool] = []  # for each thread that computes now, whether it asked for TF32
_before: list[str] = []  # torch's setting before the first of them changed it


@contextmanager
def float32_products(coarse: bool) -> Iterator[None]:
    """Multiply in TF32 where `coarse`, else in full float32, and put back what was set before.

    The setting is one for all threads. Threads with the same wish run side by side; a thread with
    the other wish waits until they have ended.
    """
    with _changed:
        _changed.wait_for(lambda: coarse in _users or not _users)
        if not _users:
            _before[:] = [torch.get_float32_matmul_precision()]
            torch.set_float32_matmul_precision("high" if coarse else "highest")
        _users.append(coarse)
    try:
        yield
    finally:
        with _changed:
            _users.remove(coarse)
            if not _users:
                torch.set_float32_matmul_precision(_before[0])
            _changed.notify_all()


# One for the process.
_asked = threading.Event()
_polite = threading.Lock()  # held while signals set `_asked`


def stop_asked() -> bool:
    """Whether somebody asked this process to stop."""
    return _asked.is_set()


def ask_to_stop() -> None:
    """As a signal does."""
    _asked.set()


class Stopping:
    """Whether it is time to stop: somebody asked, or the time given is over."""

    def __init__(self, stop_after: float | None = None) -> None:
        self.deadline = None if stop_after is None else time.monotonic() + stop_after

    def __call__(self) -> bool:
        """The same answer in all processes of a run, which must all ask after the same step."""
        late = self.deadline is not None and self.deadline < time.monotonic()
        return distributed.any_of(stop_asked() or late)


@contextmanager
def politely() -> Iterator[None]:
    """In the main thread, a first signal sets `stop_asked`; a second one acts as it did before.

    Nested, as in a worker whose runs lie within one `politely`, the inner one does nothing: a
    signal between two runs is not forgotten.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not _polite.acquire(blocking=False):
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def ask(number: int, frame: Any) -> None:
        _asked.set()
        signal.signal(number, before[signal.Signals(number)])

    _asked.clear()
    for number in numbers:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _polite.release()


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
                    state.forget(folder / run.LAST)  # still there if the run was killed before this
                return Run(folder)
            with threads(Run(folder).threads or recipe.threads):
                _go_on(recipe, folder, dataset, quiet, Stopping(stop_after), shared, log)
            give_back()  # for processes that wait for memory
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
                grouped.leave()  # so that the other runs of its group do not wait for it


def _about_threads(recipe: Recipe, begun: Run) -> str | None:
    """Where the number of threads may surprise: what it is, and why."""
    before = begun.threads
    if before is None:
        return fewer() if recipe.threads is None else None
    if recipe.threads in (None, before):
        return None
    return f"this run began with `threads={before}` and keeps to that: sums depend on it."
