"""How much memory a piece of work took at most, as the system counted it (Linux)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def _mebibytes(name: str) -> float:
    (line,) = (found for found in _STATUS.read_text().splitlines() if found.startswith(name))
    return int(line.split()[1]) / 1024


@contextmanager
def at_most(mebibytes: float) -> Iterator[None]:
    """The block may take so much more than there was before."""
    if not _RESET.exists():
        yield
        return
    _RESET.write_text("5")  # the peak begins anew
    before = _mebibytes("VmRSS:")
    yield
    taken = _mebibytes("VmHWM:") - before
    assert taken < mebibytes, f"{taken:.0f} MiB"
