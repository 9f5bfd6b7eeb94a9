"""Stopping politely: a first Ctrl-C or SIGTERM asks, and the loop ends at the next step."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def politely() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether somebody asked to stop; a second signal insists."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def ask(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in numbers:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
