"""Studies: runs an hour when many share a machine, beside a plain loop that trains one by one.

    python benchmarks/studies.py            # two cores: small runs
    python benchmarks/studies.py --cuda     # one GPU: Flickr8k's size, VSE++ at its full size

Whole studies by `simgrad study`, from the command's start to its table: many short runs, whose time
beyond training is what starting and ending cost, and runs of the published length. On a GPU both
take about eight minutes. The plain loop's time is its steps alone: in its favour, nothing is added
for start-up or validation.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import Row, command, goal, row, timed
from plain_models import VsePlusPlus
from synthetic import split as make_split
from synthetic import write_precomputed

from simgrad.runs.run import Run
from simgrad.studies.study import Study
from training import BATCH, Plain

OBJECTIVES = ("triplet-sh", "nt-xent", "triplet", "siglip", "goal(triplet=cir, pair=sig-ms)")
EPOCHS = 30  # as published
COUNTED = "start-up, validation and checkpoints are counted with us, not with the plain loop"


@dataclass(frozen=True)
class Size:
    """What is trained, and how much of it."""

    images: int
    width: int
    dimension: int
    each: int  # dimension of a word
    short: tuple[int, int, int]  # runs, epochs, processes
    runs: int  # of the published length
    epochs: int = EPOCHS
    objectives: tuple[str, ...] = OBJECTIVES


FULL = Size(6000, 1280, 1024, 300, short=(45, 15, 15), runs=65)
SMALL = Size(600, 256, 256, 64, short=(8, 1, 2), runs=4, objectives=OBJECTIVES[:2])


def rows(device: str, size: Size) -> list[Row]:
    """Short runs, runs of full length, and the plain loop."""
    setting = f"VSE++ {size.dimension}, {5 * size.images:,} captions, {device}"
    full = size is FULL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data"
        data.mkdir()
        sizes = {"train": size.images, "dev": size.images // 6, "test": size.images // 6}
        write_precomputed(data, sizes, size.width)
        runs, epochs, processes = size.short
        short, training = _study(folder / "short", device, size, runs, epochs, processes)
        whole, _ = _study(folder / "whole", device, size, size.runs, size.epochs)
    steps = -(-5 * size.images // BATCH)
    model = VsePlusPlus(size.width, size.dimension, size.each)
    plain = Plain(model, make_split(size.images, (size.width,)), device)
    each = size.epochs * steps * _plain_step(plain, min(100, steps // 2))
    beyond, ratio, unit = short - training, each * size.runs / whole, "{:,.1f} runs/hour"
    return [
        row(f"study of {runs} runs, {epochs} epochs, {processes} processes", setting,
            seconds=short),
        row("beyond training", setting, seconds=beyond,
            **(goal("< 20 s", beyond < 20) if full else {})),
        row(f"study of {size.runs} runs, {size.epochs} epochs", setting, seconds=whole,
            figure=3600 * size.runs / whole, unit=unit,
            **(goal("< 6 min", whole < 360) if full else {})),
        row(f"study of {size.runs} runs, {size.epochs} epochs / plain loop", setting,
            seconds=each * size.runs, figure=3600 / each, unit=unit, ratio=ratio,
            **(goal(">= 10x", ratio >= 10, COUNTED) if full else {"why": COUNTED})),
    ]  # fmt: skip


def _study(
    folder: Path, device: str, size: Size, runs: int, epochs: int, processes: int | None = None
) -> tuple[float, float]:
    """Seconds of the command, and those of them in which a process trained."""
    plan: dict[str, Any] = {
        "title": "packed",
        "recipe": {
            "data": str(folder.parent / "data"), "epochs": epochs, "device": device,
            "min_count": 1, "positives": "pairs",
            "precision": "bf16" if device == "cuda" else "float32",
            "model": f"vse++(dimension={size.dimension}, word_dimension={size.each})",
        },
        "grid": {"objective": list(size.objectives)},
        "seeds": runs // len(size.objectives),
    }  # fmt: skip
    file = folder.with_suffix(".yaml")
    file.write_text(json.dumps(plan))  # which is YAML
    words = [sys.executable, "-m", "simgrad.cli", "study", str(file), "--output", str(folder)]
    words += [] if processes is None else ["--processes", str(processes)]
    wall = timed(lambda: subprocess.run(words, check=True, stdout=sys.stderr))
    done = [Run(path) for path, _ in Study.open(folder).jobs()]
    if len(done) != runs or not all(run.finished for run in done):
        raise RuntimeError(f"{folder}: runs that did not finish")
    return wall, sum(run.info["seconds"] for run in done) / (processes or 1)


def _plain_step(plain: Plain, count: int) -> float:
    """On a CPU, with one thread or with all: whichever is quicker for steps as small as these."""
    threads = torch.get_num_threads()
    tried = {1, threads} if plain.device == "cpu" else {threads}
    best = float("inf")
    for number in sorted(tried):
        torch.set_num_threads(number)
        best = min(best, plain.seconds(count))
    torch.set_num_threads(threads)
    return best


def run(quick: bool = False) -> list[Row]:
    """On the CPU, where packing has only the cores to share."""
    small = Size(200, 64, 64, 32, (4, 1, 2), 4, epochs=2, objectives=OBJECTIVES[:2])
    return rows("cpu", small if quick else SMALL)


def run_cuda(quick: bool = False) -> list[Row]:
    """On one GPU."""
    torch.cuda.empty_cache()
    small = Size(1200, 1280, 1024, 300, (15, 2, 15), 15, epochs=5)
    return rows("cuda", small if quick else FULL)


if __name__ == "__main__":
    command(__doc__, run, run_cuda)
