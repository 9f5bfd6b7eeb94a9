"""What benchmarks share: timing, peak memory, and the one shape of a result row.

Every file here with `run(quick=False) -> list of rows` is a benchmark of the CPU; `run_cuda(quick)`
gives the rows of a GPU, and `profile(device)` a text that says where the time goes. A row named
"ours / peer" holds the peer's time, and in `ratio` how many times faster we are, so larger is
always better. `floor` is the least time that the arithmetic, or the bytes, of our row can take.
`goal` says what is wanted, `met` whether it holds (None: no goal), `why` the reason where it does
not, or where a peer is faster.
"""

import argparse
import contextlib
import importlib.util
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
    setting: str  # sizes and device, never a measured figure: with the name, it identifies the row
    seconds: float | None
    peak_mib: float | None
    ratio: float | None
    floor: float | None  # seconds
    figure: float | None  # anything else that was measured
    unit: str  # how `figure` is written: "{:,.0f} images/s"
    goal: str
    met: bool | None
    why: str


def row(name: str, setting: str, **figures: Any) -> Row:
    """A row; figures that were not measured are None."""
    empty: Row = {
        "name": name, "setting": setting, "seconds": None, "peak_mib": None, "ratio": None,
        "floor": None, "figure": None, "unit": "{:.3g}", "goal": "", "met": None, "why": "",
    }  # fmt: skip
    empty.update(figures)  # type: ignore[typeddict-item]
    return empty


def goal(text: str, met: bool, why: str = "") -> dict[str, Any]:
    """The last columns of a row; the reason is told only where the goal is missed."""
    return {"goal": text, "met": met, "why": "" if met else why}


def timed(step: Callable[[], Any], device: str = "cpu") -> float:
    """Seconds of one call, until the device has done it."""
    before = time.perf_counter()
    step()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter() - before


def best_time(step: Callable[[], Any], budget: float = 1.0, most: int = 20) -> float:
    """The shortest of several runs: other work on the machine only ever adds."""
    best, start = float("inf"), time.perf_counter()
    for _ in range(most):
        best = min(best, timed(step))
        if time.perf_counter() - start > budget:
            break
    return best


def in_turn(
    steps: dict[str, Callable[[], Any]], rounds: int = 3, device: str = "cpu"
) -> dict[str, float]:
    """The shortest time of each, taken in turn, so that other work hits all of them alike."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for name, step in steps.items():
            best[name] = min(best[name], timed(step, device))
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


def cuda_peak_above(step: Callable[[], Any]) -> float:
    """The same of a GPU's memory."""
    import torch

    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - held) / MIB


def in_worker(
    script: str,
    job: dict[str, Any],
    timeout: float = 600,
    environment: dict[str, str] | None = None,
) -> dict[str, Any] | None:
    """Run `script --worker JOB` in a fresh process; its last line is JSON. None if it failed."""
    command = [sys.executable, script, "--worker", json.dumps(job)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        print(f"{Path(script).name} {job}: over {timeout:.0f} s", file=sys.stderr)
        return None
    if done.returncode:
        print(f"{Path(script).name} {job}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def installed(package: str, what: str) -> bool:
    """Whether a peer is here; where it is not, that is said."""
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"left out: {what} ({package} is not installed)", file=sys.stderr)
    return found


def print_rows(rows: Iterable[Row]) -> None:
    """The table of one benchmark."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script knows its own folder
    from benchmarks.run import show

    show([{"benchmark": "", **row} for row in rows])


def command(
    text: str | None,
    run: Callable[[bool], list[Row]],
    run_cuda: Callable[[bool], list[Row]],
    worker: Callable[[dict[str, Any]], Any] | None = None,
) -> None:
    """A benchmark's own command line; `worker` does one job in a process of its own."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes")
    parser.add_argument("--cuda", action="store_true", help="on a GPU instead of the CPU")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker and worker is not None:
        print(json.dumps(worker(json.loads(options.worker))))
    else:
        print_rows(run_cuda(options.quick) if options.cuda else run(options.quick))
