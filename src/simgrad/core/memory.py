"""How much memory this process may use: the machine's, or what its container grants."""

import contextlib
import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
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
