"""How many processor cores this process may use: by affinity, and by the share of its container."""

import contextlib
import math
import os
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
