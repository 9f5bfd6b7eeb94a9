"""What is kept of a finished study: python results/flickr8k/kept.py STUDY FOLDER

Its table, a line for every run (runs.csv) and a line for every evaluation (curves.csv): training
loss, validation, how far a query's similarities spread, how many negatives share its weight.
"""

import csv
import shutil
import sys
from pathlib import Path
from typing import Any

from simgrad.runs.run import Run
from simgrad.studies.study import Study

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
    for name in ("table.md", "table.csv"):
        shutil.copy(study.path / name, to / name)


if __name__ == "__main__":
    main()
