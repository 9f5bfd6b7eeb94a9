"""Threads that compute: as many as this process may use, and none in the way of others.

OpenMP's threads wait for each other by spinning, which is quickest on a machine of one's own. Where
others compute too, a spinning thread takes the core from the one it waits for: the same run was
eight times slower beside two busy processes. Sleeping at once is right there, but alone on two
cores it takes twice as long, because threads meet every few microseconds. So they sleep at once if
somebody else computes when the program starts, and else spin for a moment first. Results do not
depend on it (`python -m benchmarks threads`).
The libraries read these settings when torch is loaded, so they are set before.
"""

import os
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from simgrad.core.cores import cores

# LLVM's and Intel's libraries know whole milliseconds, so theirs sleep at once.
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
_MOMENT = "10000"  # turns of GNU's library: some 30 microseconds


def settle(environment: MutableMapping[str, str] | None = None, count: int | None = None) -> None:
    """Set what torch will find in the environment, unless somebody has chosen already.

    `count` threads, or as many as affinity and the container's share of the machine allow.
    """
    environment = os.environ if environment is None else environment
    if "OMP_WAIT_POLICY" not in environment:  # else a choice about waiting, which stays whole
        for name, value in _WAITING.items():
            environment.setdefault(name, value)
        environment.setdefault("GOMP_SPINCOUNT", "0" if crowded() else _MOMENT)
    if count is not None:
        environment["OMP_NUM_THREADS"] = str(count)
    elif cores() < (os.cpu_count() or 1):  # else torch's own choice is right
        environment.setdefault("OMP_NUM_THREADS", str(cores()))


def crowded() -> bool:
    """Whether others compute here just now, so that not all threads of ours would have a core."""
    try:
        others = min(_running() - 1 for _ in range(3))
    except (OSError, ValueError, IndexError):  # not Linux: nobody knows
        return False
    return others + cores() > (os.cpu_count() or 1)


def _running() -> int:
    time.sleep(0.001)  # what runs for a moment only is not counted each time
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].split("/")[0])


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """So many threads for a while; None: as many as there are. The order of sums depends on it."""
    import torch

    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
