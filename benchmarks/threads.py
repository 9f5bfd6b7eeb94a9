"""Threads on a machine that is not one's own: the same small run beside two busy processes.

    python benchmarks/threads.py

The default of `simgrad train` against chosen numbers of threads, passive or spinning, each in a
process of its own, taken in turn; the shortest training time of each counts.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Row, command, goal, row

from simgrad.runs.run import Run

# What decides how threads wait and how many there are; taken out for the default.
CHOSEN = (
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "OMP_NUM_THREADS=1": {"OMP_NUM_THREADS": "1"},
    "OMP_NUM_THREADS=2": {"OMP_NUM_THREADS": "2"},
    "sleeping at once": {"GOMP_SPINCOUNT": "0"},
    "spinning for a moment": {"GOMP_SPINCOUNT": "10000"},
    "spinning, as torch is by itself": {"GOMP_SPINCOUNT": "300000"},
}
BUSY = 2  # processes beside the run


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that only compute."""
    # Each ends with this process, however that ends.
    code = f"import os\nwhile os.getppid() == {os.getpid()}:\n  for _ in range(10**6): pass"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def seconds(chosen: dict[str, str], folder: Path, images: int, epochs: int) -> float:
    """Of one run's training, without its start."""
    environment = {k: v for k, v in os.environ.items() if k not in CHOSEN} | chosen
    data = f"scenes(train={images}, val=100, test=100, features=global)"
    words = ["train", "--data", data, "--model", "vse++(dimension=128, word_dimension=64)"]
    words += ["--objective", "nt-xent", "--epochs", str(epochs), "--device", "cpu", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "simgrad.cli", *words, "--output", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return float(Run(folder).info["seconds"])


def run(quick: bool = False) -> list[Row]:
    """Beside busy processes, and alone."""
    rounds, images, epochs = (1, 300, 1) if quick else (3, 1000, 3)
    rows: list[Row] = []
    for beside in (0, BUSY):
        best = dict.fromkeys(SETTINGS, float("inf"))
        with tempfile.TemporaryDirectory() as folder, busy(beside):
            for turn in range(rounds):
                for number, (name, chosen) in enumerate(SETTINGS.items()):
                    if turn and best[name] > 3 * min(best.values()):
                        continue  # far behind: once is enough
                    place = Path(folder) / f"{turn}-{number}"
                    best[name] = min(best[name], seconds(chosen, place, images, epochs))
        least = min(best.values())
        setting = f"{images:,} images, {epochs} epochs, beside {beside} busy processes"
        for name, took in best.items():
            wanted = {}
            if name == "default" and not quick:
                wanted = goal("<= 1.2x of the best", took <= 1.2 * least)
            rows.append(
                row(f"a small run, {name}", setting, seconds=took, figure=took / least,
                    unit="{:.2f}x of the best", **wanted)
            )  # fmt: skip
    return rows


if __name__ == "__main__":
    command(__doc__, run, lambda quick: [])
