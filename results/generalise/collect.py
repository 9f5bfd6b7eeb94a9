"""What is kept of the finished parts, and runs.csv for analyse.py.

    python results/generalise/collect.py keep STUDY flickr8k   # ranks and searches -> flickr8k/
    python results/generalise/collect.py                       # flickr8k/, coco/ -> runs.csv

A study that has not ended is refused: nobody looks at the ranks of a part before that.
flickr8k/tests.csv has a line for each test run with its outcome; its ranks are in flickr8k/ranks,
unless it diverged or no trial of its search trained: it has found nothing then. curves.csv has
every epoch of every run, those of the searches too.
"""

import argparse
import csv
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks, metrics_of
from simgrad.runs.outcome import outcome_of
from simgrad.runs.run import RANKS, Run
from simgrad.studies.engine import only_diverged
from simgrad.studies.study import RUNS, Study

HERE = Path(__file__).resolve().parent
PARTS = ("flickr8k", "coco")
_DEPTHS = (1, 5, 10)


def parts_of_photos(ranks: Ranks) -> np.ndarray:
    """(images,) what each photo adds to the rsum: their mean is the rsum."""
    images, captions = len(ranks.i2t), len(ranks.t2i)
    found = np.zeros(images)
    for depth in _DEPTHS:
        found += ranks.i2t <= depth
        right = (ranks.t2i <= depth).astype(float)
        found += np.bincount(ranks.image_of_caption, right, images) * images / captions
    return 100 * found


def tests(study: Study) -> Iterator[dict[str, Any]]:
    """A line for each test run; a row without a setting failed with every seed."""
    for number, one in enumerate(study.plan.replicates, 1):
        for row, own in zip(study.plan.rows, one.rows, strict=True):
            for seed in one.seeds:
                run = Run(study.path / RUNS / own.folder(seed))
                outcome = outcome_of(run) or "diverged"
                told = {"run": run.name, "replicate": number, "objective": row.label}
                yield told | {"seed": seed, "outcome": outcome}


def keep(study: Study, folder: Path) -> None:
    """Copy what the numbers rest on; a part that has not ended is refused."""
    if not study.complete and not only_diverged(study):
        raise InputError(f"{study.path}: has not ended; run its command again to resume.")
    lines = list(tests(study))
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    for line in lines:
        ranks = study.path / RUNS / line["run"] / RANKS
        if line["outcome"] != "diverged":
            shutil.copy(ranks, folder / "ranks" / f"{line['run']}.parquet")
    (folder / "tuned").mkdir(exist_ok=True)
    for tuning in study.tunings:
        shutil.copy(tuning.path, folder / "tuned" / tuning.path.name)
    shutil.copy(study.path / "study.yaml", folder / "study.yaml")
    _write(folder / "tests.csv", lines)
    _write(folder / "curves.csv", list(curves(study.path)))


def curves(study: Path) -> Iterator[dict[str, Any]]:
    """What each epoch of each run was like."""
    for run in sorted([*study.glob("trials/*"), *study.glob("runs/*")]):
        for epoch in Run(run).history:
            row = {"run": run.name, "epoch": round(epoch["epoch"]), "loss": f"{epoch['loss']:.5g}"}
            row |= {"val": epoch["val"]["rsum"], "spread": epoch["spread"]}
            for side, told in epoch["attention"].items():  # where no triplet is open there is less
                for name in ("effective", "hardest_share", "zero_share"):
                    row[f"{side}_{name}"] = f"{told.get(name, math.nan):.4g}"
            yield row


def collect(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of runs.csv of one part, from its kept ranks."""
    with (folder / "tests.csv").open(newline="") as lines:
        for line in csv.DictReader(lines):
            rsum, photo = 0.0, 0.0
            if line["outcome"] != "diverged":
                ranks = Ranks.load(folder / "ranks" / f"{line['run']}.parquet")
                parts = parts_of_photos(ranks)
                rsum, photo = metrics_of(ranks)["rsum"], float(parts.var(ddof=1)) / len(parts)
                assert math.isclose(rsum, parts.mean(), abs_tol=1e-6)
            told = {key: line[key] for key in ("replicate", "objective", "seed", "outcome")}
            yield {"data": folder.name, **told, "rsum": round(rsum, 6), "photo": round(photo, 6)}


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command")
    kept = commands.add_parser("keep")
    kept.add_argument("study")
    files = sorted(path.stem for path in HERE.glob("*.yaml") if path.stem != "minutes")
    kept.add_argument("part", choices=files)
    told = parser.parse_args()
    if told.command == "keep":
        keep(Study.open(told.study), HERE / told.part)
        return
    _write(HERE / "runs.csv", [line for part in PARTS for line in collect(HERE / part)])


if __name__ == "__main__":
    main()
