"""Studies: runs an hour when many share a machine, beside a plain loop that trains one by one.

    python benchmarks/studies.py            # two cores: small runs
    python benchmarks/studies.py --cuda     # one GPU: Flickr8k's size, VSE++ at its full size

A whole study by `simgrad study`, from the command's start to its table, with runs of the published
length. The plain loop's time is its steps alone: in its favour, nothing is added for start-up or
validation.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
RUNS, EPOCHS = 65, 30  # as published
COUNTED = "start-up, validation and checkpoints are counted with us, not with the plain loop"


@dataclass(frozen=True)
class Size:
    """What is trained."""

    images: int
    width: int
    dimension: int
    each: int  # dimension of a word
    objectives: tuple[str, ...] = OBJECTIVES

    def setting(self, device: str) -> str:
        """In the table's words."""
        return f"VSE++ {self.dimension}, {5 * self.images:,} captions, {device}"


FULL = Size(6000, 1280, 1024, 300)
SMALL = Size(600, 256, 256, 64, objectives=OBJECTIVES[:2])


def rows(device: str, size: Size, runs: int, epochs: int) -> list[Row]:
    """Runs of full length, and the plain loop."""
    with written(size) as folder:
        whole, _ = study_of(folder, device, size, runs, epochs)
    steps = -(-5 * size.images // BATCH)
    model = VsePlusPlus(size.width, size.dimension, size.each)
    plain = Plain(model, make_split(size.images, (size.width,)), device)
    each = epochs * steps * _plain_step(plain, min(100, steps // 2))
    name, setting = f"study of {runs} runs, {epochs} epochs", size.setting(device)
    full = size is FULL
    ratio, unit = each * runs / whole, "{:,.1f} runs/hour"
    return [
        row(name, setting, seconds=whole, figure=3600 * runs / whole, unit=unit,
            **(goal("< 6 min", whole < 360) if full else {})),
        row(f"{name} / plain loop", setting, seconds=each * runs, figure=3600 / each, unit=unit,
            ratio=ratio, **(goal(">= 10x", ratio >= 10, COUNTED) if full else {"why": COUNTED})),
    ]  # fmt: skip


@contextmanager
def written(size: Size) -> Iterator[Path]:
    """A folder that holds the data."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        data.mkdir()
        sizes = {"train": size.images, "dev": size.images // 6, "test": size.images // 6}
        write_precomputed(data, sizes, size.width)
        yield Path(name)


def study_of(
    folder: Path, device: str, size: Size, runs: int, epochs: int, processes: int | None = None
) -> tuple[float, float]:
    """Seconds of the command, and those of them in which a process trained."""
    plan: dict[str, Any] = {
        "title": "packed",
        "recipe": {
            "data": str(folder / "data"), "epochs": epochs, "device": device,
            "min_count": 1, "positives": "pairs",
            "precision": "bf16" if device == "cuda" else "float32",
            "model": f"vse++(dimension={size.dimension}, word_dimension={size.each})",
        },
        "grid": {"objective": list(size.objectives)},
        "seeds": runs // len(size.objectives),
    }  # fmt: skip
    file, study = folder / "study.yaml", folder / "study"
    file.write_text(json.dumps(plan))  # which is YAML
    words = [sys.executable, "-m", "simgrad.cli", "study", str(file), "--output", str(study)]
    words += [] if processes is None else ["--processes", str(processes)]
    wall = timed(lambda: subprocess.run(words, check=True, stdout=sys.stderr))
    done = [Run(path) for path, _ in Study.open(study).jobs()]
    if len(done) != runs or not all(run.finished for run in done):
        raise RuntimeError(f"{study}: runs that did not finish")
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
    small = Size(200, 64, 64, 32, objectives=OBJECTIVES[:2])
    return rows("cpu", small, 4, 2) if quick else rows("cpu", SMALL, 4, EPOCHS)


def run_cuda(quick: bool = False) -> list[Row]:
    """On one GPU."""
    torch.cuda.empty_cache()
    small = Size(1200, 1280, 1024, 300)
    return rows("cuda", small, 15, 5) if quick else rows("cuda", FULL, RUNS, EPOCHS)


if __name__ == "__main__":
    command(__doc__, run, run_cuda)
