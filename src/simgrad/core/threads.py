"""Cores and memory this process may use, and threads that compute: as many as are free.

A library's threads wait for each other many times in a step. Where others compute too, all wait for
the one that has no core: a small run beside two busy processes took half as long with one thread as
with two. So a command takes as many threads as cores are free when it starts. The order of sums
depends on the number: a run keeps the one it began with, and a study has one for all its runs.

Waiting by spinning is quickest on a machine of one's own, but takes the core from others; sleeping
at once takes twice as long there. So threads spin for a moment, then sleep; where not all of them
can have a core, they sleep at once. Results do not depend on that (`python -m benchmarks threads`).
The libraries read these settings when torch is loaded, so they are set before.
"""

import contextlib
import math
import os
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_TOPOLOGY = Path("/sys/devices/system/cpu")


def cores() -> int:
    """At least 1. Asked of the system, not of the machine: a container may have a part of it."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    share = _share()
    return max(1, count if share is None else min(count, math.ceil(share)))


def whole_cores() -> int:
    """Cores of the machine, where each counts once though it may do two things at a time."""
    pairs = set()
    with contextlib.suppress(OSError):
        for file in _TOPOLOGY.glob("cpu[0-9]*/topology/thread_siblings_list"):
            pairs.add(file.read_text().strip())
    return len(pairs) or os.cpu_count() or 1


def _share() -> float | None:
    """Cores' worth of time that a control group grants; None where nothing limits it."""
    with contextlib.suppress(OSError, ValueError):  # version 2: "200000 100000", or "max 100000"
        quota, period = (_GROUPS / "cpu.max").read_text().split()
        return float(quota) / float(period)
    with contextlib.suppress(OSError, ValueError):  # version 1; -1: no limit
        quota = (_GROUPS / "cpu" / "cpu.cfs_quota_us").read_text()
        period = (_GROUPS / "cpu" / "cpu.cfs_period_us").read_text()
        return float(quota) / float(period) if float(quota) > 0 else None
    return None


NUMBER = "OMP_NUM_THREADS"
# LLVM's and Intel's libraries know whole milliseconds, so theirs sleep at once.
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
_MOMENT = "10000"  # turns of GNU's library: some 30 microseconds
_LOOKS, _PAUSE = 8, 0.003  # who runs for a moment only is not seen every time
_taken: str | None = None  # what `settle` has chosen itself


def settle(environment: MutableMapping[str, str] | None = None, count: int | None = None) -> None:
    """Set what torch will find in the environment, unless somebody has chosen already.

    `count` threads, or as many as cores are free.
    """
    global _taken
    environment = os.environ if environment is None else environment
    given = count is not None or NUMBER in environment
    there = cores() if environment.get(NUMBER) == "1" else free()  # one thread waits for none
    if not given and there < (os.cpu_count() or 1):  # else torch's own count is right
        count = there
        if environment is os.environ:
            _taken = str(count)
    if count is not None:
        environment[NUMBER] = str(count)
    if "OMP_WAIT_POLICY" not in environment:  # else a choice about waiting, which stays whole
        for name, value in _WAITING.items():
            environment.setdefault(name, value)
        environment.setdefault("GOMP_SPINCOUNT", "0" if there < cores() else _MOMENT)


def free() -> int:
    """How many cores that this process may use nobody computes on just now; at least 1."""
    try:
        others = min(_running() - 1 for _ in range(_LOOKS))
    except (OSError, ValueError, IndexError):  # not Linux: nobody knows
        return cores()
    return max(1, min(cores(), whole_cores() - others)) if others > 0 else cores()


def pinned() -> int | None:
    """The number of threads that somebody has chosen with OMP_NUM_THREADS."""
    told = os.environ.get(NUMBER, "")
    first = told.split(",")[0].strip()  # "4,2": more than one level of threads
    return int(first) if told != _taken and first.isdigit() and int(first) else None


def fewer() -> str | None:
    """What to tell people where `settle` took fewer threads than there are cores."""
    if _taken is None or int(_taken) >= cores():
        return None
    return (
        f"others compute here, so this run takes {_taken} of {cores()} threads and keeps to that; "
        "`threads` sets another number."
    )


def _running() -> int:
    time.sleep(_PAUSE)
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


_UNKNOWN = 8 << 30  # where the system does not say


def memory() -> int:
    """Bytes in all, used or not: what the same machine says tomorrow as well."""
    found = _UNKNOWN
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # version 2, version 1
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            found = min(found, int((_GROUPS / name).read_text()))
    return found
