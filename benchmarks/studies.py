"""Studies: runs an hour when many share a machine, beside a plain loop that trains one by one.

    python benchmarks/studies.py            # two cores: small runs
    python benchmarks/studies.py --cuda     # one GPU: Flickr8k's size, VSE++ at its full size

A study of a few epochs is trained by `simgrad study`'s engine, processes, evaluations and
checkpoints included. What a run takes besides its epochs is measured too, so that the runs an hour
of a full schedule follow. The plain loop's time is its steps alone: in its favour, nothing is added
for start-up or validation.
"""

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
from simgrad.studies.engine import crew_here, failures, run_local
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from training import BATCH, Plain

OBJECTIVES = ("triplet", "triplet-sh", "nt-xent", "goal(triplet=cir, pair=sig-ms)")
EPOCHS = 30  # of the full schedule
COUNTED = "start-up, validation and checkpoints are counted with us, not with the plain loop"


@dataclass(frozen=True)
class Size:
    """What is trained, and for how long it is watched."""

    images: int
    width: int
    dimension: int
    each: int  # dimension of a word
    epochs: int
    runs: int | None = None  # None: as many as the machine trains at once


FULL = Size(6000, 1280, 1024, 300, epochs=5)
SMALL = Size(600, 256, 256, 64, epochs=3, runs=4)


def make_study(folder: Path, size: Size, device: str, runs: int) -> Study:
    """A study on features of random numbers."""
    data = folder / "data"
    data.mkdir()
    sizes = {"train": size.images, "dev": size.images // 6, "test": size.images // 6}
    write_precomputed(data, sizes, size.width)
    plan: dict[str, Any] = {
        "title": "packed",
        "recipe": {
            "data": str(data), "epochs": size.epochs, "device": device, "min_count": 1,
            "positives": "pairs", "precision": "bf16" if device == "cuda" else "float32",
            "model": f"vse++(dimension={size.dimension}, word_dimension={size.each})",
        },
        "grid": {"objective": list(OBJECTIVES)},
        "seeds": -(-runs // len(OBJECTIVES)),
    }  # fmt: skip
    return Study.create(plan_from_dict(plan, "plan"), folder / "study")


def rows(device: str, size: Size) -> list[Row]:
    """A packed study and the plain loop."""
    with tempfile.TemporaryDirectory() as name:
        # A study larger than any crew tells how many runs this machine trains at once.
        runs = size.runs
        if runs is None:
            (Path(name) / "probe").mkdir()
            probe = make_study(Path(name) / "probe", size, device, 64)
            runs = crew_here(probe, None, None).processes
        study = make_study(Path(name), size, device, runs)
        crew = crew_here(study, None, None)
        wall = timed(lambda: run_local(study, quiet=True))
        done = [Run(path) for path, _ in study.jobs()]
        if failures(study):
            raise RuntimeError(f"runs that did not finish: {failures(study)[:2]}")
        epoch = sum(map(_epoch, done)) / len(done)
    waves = -(-len(done) // crew.processes)
    rest = max(0.0, wall / waves - size.epochs * epoch)
    ours = crew.processes * 3600 / (rest + EPOCHS * epoch)
    steps = -(-5 * size.images // BATCH)
    model = VsePlusPlus(size.width, size.dimension, size.each)
    plain = Plain(model, make_split(size.images, (size.width,)), device)
    theirs = 3600 / (EPOCHS * steps * _plain_step(plain, min(100, steps // 2)))
    return _table(device, size, len(done), wall, ours, theirs)


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


def _epoch(run: Run) -> float:
    """Seconds between evaluations, once it was under way."""
    history = run.history
    return float(history[-1]["seconds"] - history[0]["seconds"]) / (len(history) - 1)


def _table(
    device: str, size: Size, runs: int, wall: float, ours: float, theirs: float
) -> list[Row]:
    setting = f"VSE++ {size.dimension}, {5 * size.images:,} captions, {device}"
    gpu, unit = device == "cuda", "{:,.1f} runs/hour"
    full = size is FULL
    ratio = ours / theirs
    return [
        row(f"study of {runs} runs, {size.epochs} epochs", setting, seconds=wall),
        row(f"study, {EPOCHS} epochs", setting, seconds=3600 / ours, figure=ours, unit=unit,
            **(goal(">= 390 runs/hour (65 in 10 min)", ours >= 390) if gpu and full else {})),
        row(f"study, {EPOCHS} epochs / plain loop", setting, seconds=3600 / theirs, figure=theirs,
            unit=unit, ratio=ratio,
            **(goal(">= 10x", ratio >= 10, COUNTED) if gpu and full else {"why": COUNTED})),
    ]  # fmt: skip


def run(quick: bool = False) -> list[Row]:
    """On the CPU, where packing has only the cores to share."""
    return rows("cpu", Size(200, 64, 64, 32, epochs=2, runs=4) if quick else SMALL)


def run_cuda(quick: bool = False) -> list[Row]:
    """On one GPU."""
    torch.cuda.empty_cache()
    return rows("cuda", Size(1200, 1280, 1024, 300, epochs=4) if quick else FULL)


if __name__ == "__main__":
    command(__doc__, run, run_cuda)
