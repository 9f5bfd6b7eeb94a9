"""Stopping politely: a first Ctrl-C or SIGTERM asks, and every run ends at its next step."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# One for the process: runs side by side in threads stop together.
_asked = threading.Event()


def stop_asked() -> bool:
    """Whether somebody asked this process to stop."""
    return _asked.is_set()


@contextmanager
def politely() -> Iterator[Callable[[], bool]]:
    """Yields `stop_asked`; in the main thread signals are turned into it. A second one insists."""
    if threading.current_thread() is not threading.main_thread():
        yield stop_asked
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
        yield stop_asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
