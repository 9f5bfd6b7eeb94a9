"""Python processes of our own, in which nothing runs that merely lies in the current folder.

Python, started with -m or -c, looks for modules in the current folder first: a `json.py` beside a
stranger's study would run. PYTHONPATH counts as usual.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# In the environment, for processes that a library starts (`multiprocessing`), and theirs.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}


def python(module: str, *words: str) -> list[str]:
    """The command that runs a module of ours."""
    return [sys.executable, "-P", "-m", module, *words]


@contextmanager
def deaf() -> Iterator[None]:
    """Processes begun meanwhile ignore Ctrl-C, from before their first import: a terminal sends it
    to all, and one answer is enough. Whoever begins them ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say how signals are taken
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
