"""Stopping politely: a first Ctrl-C or SIGTERM asks, and every run ends at its next step.

Of several processes that train one run, all stop at the same step: whether to stop is agreed after
every step, so a signal to one of them is enough.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from simgrad.training import distributed

# One for the process.
_asked = threading.Event()
_polite = threading.Lock()  # held while signals are turned into it


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
    """In the main thread signals are turned into `stop_asked`. A second one insists.

    Within another `politely`, a worker's around its runs, nothing changes: what was asked between
    two runs stays asked.
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
