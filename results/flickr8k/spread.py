"""How much searches, seeds and images differ: what the smallest gap of a plan rests on.

    python results/flickr8k/spread.py    # writes study/spread.md; compute.py --check compares it

From the kept ranks of the study, and for searches from the means of the study before it
(study/before.csv, of `git show d3cc93d:results/flickr8k/study/table.csv`).
"""

import csv
import math
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import mean

from simgrad.evaluation import Ranks
from simgrad.evaluation.crossed import Crossed, sureness

STUDY = Path(__file__).resolve().parent / "study"
STEADY = 10.0  # a standard deviation between seeds, in both studies


def rsums() -> dict[str, Crossed]:
    """Of each objective, what each image adds to rsum in each run."""
    found: dict[str, list[Ranks]] = defaultdict(list)
    with open(STUDY / "runs.csv", newline="") as file:
        for line in csv.DictReader(file):
            found[line["row"]].append(Ranks.load(STUDY / "ranks" / f"{line['run']}.parquet"))
    whole = {row: Crossed.of(ranks) for row, ranks in found.items()}
    return {
        row: Crossed(("rsum",), one.values[:, :, [one.names.index("rsum")]], one.fold)
        for row, one in whole.items()
    }


def spreads() -> dict[str, float]:
    """Standard deviations, each of one draw."""
    found = rsums()
    images = len(next(iter(found.values())).fold)
    both = {row: float(one.run_part[0]) * len(one) for row, one in found.items()}
    inner = {row: float(one.interaction[0]) * len(one) for row, one in found.items()}
    pairs = list(combinations(found, 2))
    shared = [sureness(found[a], found[b]).image_error[0] ** 2 for a, b in pairs]
    return {
        "search": math.sqrt(_searches(found, both)),
        "seed": math.sqrt(mean(both.values()) - mean(inner.values())),
        "image": math.sqrt(images * mean(shared)),
        "image and seed": math.sqrt(images * mean(inner[a] + inner[b] for a, b in pairs)),
    }


def _searches(found: dict[str, Crossed], both: dict[str, float]) -> float:
    """The variance between two searches' means, less what their seeds make of it."""
    with open(STUDY / "before.csv", newline="") as file:
        before = {line["row"]: line for line in csv.DictReader(file)}
    steady = [
        row
        for row in found
        if float(before[row]["std"]) <= STEADY and math.sqrt(both[row]) <= STEADY
    ]
    moved = [float(found[row].mean[0]) - float(before[row]["mean"]) for row in steady]
    own = mean(both[row] / len(found[row]) for row in steady)
    return mean(gap**2 for gap in moved) / 2 - own


def page() -> str:
    told = {
        "search": "of one objective, between searches of 24 trials (this study and the one before, "
        "objectives whose seeds differ by at most 10 in both; without what seeds make of it)",
        "seed": "of one objective, between seeds, without what a seed does with an image",
        "image": "of a pair, of one test image",
        "image and seed": "of a pair, of one test image and a seed of each",
    }
    found = spreads()
    lines = ["# How much searches, seeds and images differ", ""]
    lines += [
        "By `python results/flickr8k/spread.py`: standard deviations of rsum, over all thirteen "
    ]
    lines[-1] += (
        "objectives and their 78 pairs (root mean square). `choose` computes the smallest gap "
    )
    lines[-1] += "of its plan from them."
    lines += ["", "| | | rsum |", "|---|---|---|"]
    lines += [f"| {name} | {told[name]} | {value:.1f} |" for name, value in found.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (STUDY / "spread.md").write_text(page())
