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
import time
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

from simgrad.runs.run import INFO, RECIPE, Run
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
        whole = study_of(folder, device, size, runs, epochs).whole
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


@dataclass(frozen=True)
class Spent:
    """Seconds of a study's command."""

    whole: float
    training: float  # of them, in which a process trained
    before: float  # until the first run began
    after: float  # since the last run was over


def study_of(
    folder: Path, device: str, size: Size, runs: int, epochs: int, processes: int | None = None
) -> Spent:
    """What a study's command takes."""
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
    begun = time.time()
    wall = timed(lambda: subprocess.run(words, check=True, stdout=sys.stderr))
    done = [Run(path) for path, _ in Study.open(study).jobs()]
    if len(done) != runs or not all(run.finished for run in done):
        raise RuntimeError(f"{study}: runs that did not finish")
    first = min((run.path / RECIPE).stat().st_mtime for run in done)
    last = max((run.path / INFO).stat().st_mtime for run in done)
    training = sum(run.info["seconds"] for run in done) / (processes or 1)
    return Spent(wall, training, first - begun, begun + wall - last)


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
