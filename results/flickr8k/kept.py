"""What is kept of a finished study: python results/flickr8k/kept.py STUDY FOLDER

Its table, a line for every run (runs.csv) and a line for every evaluation (curves.csv): training
loss, validation, how far a query's similarities spread, how many negatives share its weight. Of a
tuned study also what each search found (tuned/), and validation of its finalists (finalists.csv).
"""

import csv
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simgrad.runs.run import RANKS, Run
from simgrad.studies.study import Study
from simgrad.studies.tuned import TUNED, Tuning

METRICS = ("rsum", "i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


def run_line(row: str, run: Run) -> dict[str, Any]:
    best, info = run.info["best"], run.info
    told = {"run": run.path.name, "row": row, "seed": info["seed"], "lr": run.recipe.lr}
    told |= {"validation_rsum": best["rsum"], "best_step": best["step"], "steps": info["steps"]}
    told |= {name: round(run.test[name], 4) for name in METRICS}
    return told | {"seconds": info["seconds"], "commit": info.get("git")}


def curve_line(run: Run, entry: dict[str, Any]) -> dict[str, Any]:
    told = {"run": run.path.name, "epoch": round(entry["epoch"], 3), "step": entry["step"]}
    told |= {"loss": round(entry["loss"], 4), "validation_rsum": entry["val"]["rsum"]}
    told["spread"] = round(entry["spread"], 4)
    for way in ("i2t", "t2i"):
        told[f"effective_{way}"] = round(entry["attention"][way]["effective"], 2)
    return told


def finalist_lines(tuning: Tuning) -> Iterator[dict[str, Any]]:
    trials = tuning.search.trials()
    for number, further in tuning.repeats(trials).items():
        first = tuning.run_of(trials[number], "full")
        for folder, recipe in [first, *further]:
            told = {"row": tuning.name, "trial": number, "seed": recipe.seed}
            for entry in Run(folder).history:
                yield told | {"step": entry["step"], "validation_rsum": entry["val"]["rsum"]}


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    study, to = Study.open(sys.argv[1]), Path(sys.argv[2])
    to.mkdir(exist_ok=True)
    runs = [(label, run) for label, some in study.groups.items() for run in some]
    write(to / "runs.csv", [run_line(label, run) for label, run in runs])
    write(to / "curves.csv", [curve_line(run, e) for _, run in runs for e in run.history])
    (to / "ranks").mkdir(exist_ok=True)
    for _, run in runs:
        shutil.copy(run.path / RANKS, to / "ranks" / f"{run.path.name}.parquet")
    for name in ("table.md", "table.csv"):
        shutil.copy(study.path / name, to / name)
    if study.tunings:
        (to / TUNED).mkdir(exist_ok=True)
    for tuning in study.tunings:
        shutil.copy(tuning.path, to / TUNED / tuning.path.name)
    finalists = [line for tuning in study.tunings for line in finalist_lines(tuning)]
    if finalists:
        write(to / "finalists.csv", finalists)


if __name__ == "__main__":
    main()
