"""Threads that compute: as many as this process may use, and none that spins while it waits.

OpenMP's threads wait for each other by spinning, which is quickest on a machine of one's own. Where
others compute too, a spinning thread takes the core from the one it waits for: the same run was
eight times slower beside two busy processes. Waiting passively costs next to nothing elsewhere.
The libraries read these settings when torch is loaded, so they are set before.
"""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from simgrad.core.cores import cores

_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}  # GNU's and LLVM's; Intel's


def settle(environment: MutableMapping[str, str] | None = None, count: int | None = None) -> None:
    """Set what torch will find in the environment, unless somebody has chosen already.

    `count` threads, or as many as affinity and the container's share of the machine allow.
    """
    environment = os.environ if environment is None else environment
    for name, value in _PASSIVE.items():
        environment.setdefault(name, value)
    if count is not None:
        environment["OMP_NUM_THREADS"] = str(count)
    elif cores() < (os.cpu_count() or 1):  # else torch's own choice is right
        environment.setdefault("OMP_NUM_THREADS", str(cores()))


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
