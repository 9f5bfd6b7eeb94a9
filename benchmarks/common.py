"""What benchmarks share: timing, peak memory, and the one shape of a result row.

Every file here that has `run(quick=False) -> list of rows` is a benchmark. A row's `ratio` says how
many times better we are than what it is compared with, so larger is always better; `goal` says
what is wanted of it, `met` whether it holds (None: no goal).
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypedDict

MIB = 2**20


class Row(TypedDict):
    """One line of the table."""

    name: str
    setting: str
    seconds: float | None
    peak_mib: float | None
    ratio: float | None
    goal: str
    met: bool | None


def row(name: str, setting: str, **figures: Any) -> Row:
    """A row; figures that were not measured are None."""
    empty: Row = {
        "name": name, "setting": setting, "seconds": None, "peak_mib": None, "ratio": None,
        "goal": "", "met": None,
    }  # fmt: skip
    empty.update(figures)  # type: ignore[typeddict-item]
    return empty


def best_time(step: Callable[[], Any], budget: float = 1.0, most: int = 20) -> float:
    """The shortest of several runs: other work on the machine only ever adds."""
    best, start = float("inf"), time.perf_counter()
    for _ in range(most):
        before = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - before)
        if time.perf_counter() - start > budget:
            break
    return best


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def peak_above(step: Callable[[], Any]) -> float:
    """MiB of resident memory that `step` needs at its peak, above what is held before it.

    Only true in a process that has done little else: run it in one of its own (`in_worker`).
    """
    before = _status("VmRSS")
    # The kernel forgets the peak so far; where it may not, the imports' peak stays in: no harm.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    step()
    return max(0.0, _status("VmHWM") - before)


def in_worker(script: str, job: dict[str, Any], timeout: float = 600) -> dict[str, Any] | None:
    """Run `script --worker JOB` in a fresh process; its last line is JSON. None if it failed."""
    command = [sys.executable, script, "--worker", json.dumps(job)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(f"{Path(script).name} {job}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def print_rows(rows: Iterable[Row]) -> None:
    """A plain table: needs nothing but Python, so that it prints on any machine."""
    head = ("what", "setting", "time", "peak MiB", "ratio", "goal", "met")
    cells = [head]
    for r in rows:
        met = {None: "", True: "yes", False: "NO"}[r["met"]]
        cells.append(
            (r["name"], r["setting"], seconds(r["seconds"]), number(r["peak_mib"], "{:,.0f}"),
             number(r["ratio"], "{:.2f}x"), r["goal"], met)
        )  # fmt: skip
    widths = [max(len(c[k]) for c in cells) for k in range(len(head))]
    for line in cells:
        left = [line[k].ljust(widths[k]) for k in (0, 1)]
        right = [line[k].rjust(widths[k]) for k in (2, 3, 4)]
        print("  ".join([*left, *right, line[5].ljust(widths[5]), line[6]]).rstrip())


def seconds(value: float | None) -> str:
    """3.2 s, 14 ms, 120 us."""
    if value is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.0f} us"


def number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
