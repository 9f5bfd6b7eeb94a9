"""Studies of many short runs: what starting and ending them costs, beside training.

    python benchmarks/studies_short.py            # two cores: small runs
    python benchmarks/studies_short.py --cuda     # one GPU: Flickr8k's size, VSE++ at its full size

A whole study by `simgrad study`, from the command's start to its table. What is not training is
imports, reading the data, the GPU's own start, waiting for the last run, and the table.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Row, command, goal, row

from studies import FULL, OBJECTIVES, SMALL, Size, study_of, written

RUNS, EPOCHS, PROCESSES = 45, 15, 15


def rows(device: str, size: Size, runs: int, epochs: int, processes: int) -> list[Row]:
    """The study, and what of it was not training."""
    with written(size) as folder:
        spent = study_of(folder, device, size, runs, epochs, processes)
    setting, beyond = size.setting(device), spent.whole - spent.training
    name = f"study of {runs} runs, {epochs} epochs, {processes} processes"
    return [
        row(name, setting, seconds=spent.whole),
        row("until the first run begins", setting, seconds=spent.before),
        row("since the last run is over", setting, seconds=spent.after),
        row("beyond training", setting, seconds=beyond,
            **(goal("< 20 s", beyond < 20) if size is FULL else {})),
    ]  # fmt: skip


def run(quick: bool = False) -> list[Row]:
    """On the CPU."""
    small = Size(200, 64, 64, 32, objectives=OBJECTIVES[:2])
    return rows("cpu", small, 4, 1, 2) if quick else rows("cpu", SMALL, 8, 1, 2)


def run_cuda(quick: bool = False) -> list[Row]:
    """On one GPU."""
    small = Size(1200, 1280, 1024, 300)
    return rows("cuda", small, 15, 2, 15) if quick else rows("cuda", FULL, RUNS, EPOCHS, PROCESSES)


if __name__ == "__main__":
    command(__doc__, run, run_cuda)
