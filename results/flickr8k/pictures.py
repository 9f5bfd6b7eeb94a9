"""The pictures of README.md, from the files of study/ beside it.

`python results/flickr8k/pictures.py` draws them.
"""

import csv
import json
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
STUDY = HERE / "study"
LEADER = "goal(triplet=cir, pair=sig-ms)"
CURVES = {
    "goal(triplet=cir, pair=sig-ms)": "C3",
    "nt-xent": "C0",
    "goal(triplet=con, pair=sig-ms)": "C1",
    "triplet-sh": "C4",
}


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def short(label: str) -> str:
    """goal (cir, sig-ms), also of a row's name, goal-triplet=cir-pair=sig-ms."""
    name = label.replace("goal-triplet=", "goal(triplet=").replace("-pair=", ", pair=")
    name = name.replace("goal(triplet=", "goal (").replace("pair=", "")
    return name if ")" in name or "(" not in name else f"{name})"


def forest() -> None:
    """Every seed's test rsum; and how far each is behind the leader, with 95 % intervals."""
    seeds: dict[str, list[float]] = defaultdict(list)
    for run in read(STUDY / "runs.csv"):
        seeds[run["row"]].append(float(run["rsum"]))
    gaps = {line["label"]: line for line in read(STUDY / "against.csv") if line["base"] == LEADER}
    order = sorted(seeds, key=lambda label: sum(seeds[label]) / len(seeds[label]))
    figure, (left, right) = plt.subplots(
        1, 2, sharey=True, figsize=(9.5, 5), layout="constrained", width_ratios=(3, 2)
    )
    for place, label in enumerate(order):
        values = seeds[label]
        left.plot(values, [place] * len(values), "o", color="0.6", markersize=4)
        left.plot(
            sum(values) / len(values), place, "|", color="C3", markersize=16, markeredgewidth=3
        )
        if label == LEADER:
            right.plot(0, place, "o", color="0.3")
            continue
        gap, low, high = (float(gaps[label][key]) for key in ("difference", "low", "high"))
        sure = float(gaps[label]["p"]) < 0.05
        right.plot([low, high], [place, place], color="C3" if sure else "0.6", linewidth=2)
        right.plot(gap, place, "o", color="C3" if sure else "0.3")
    left.set_yticks(range(len(order)), [short(label) for label in order])
    left.set_title("test rsum of ten seeds, and their mean", loc="left", fontsize=10)
    right.set_title("behind the leader, 95 %\n(red: told apart, Holm)", loc="left", fontsize=10)
    right.axvline(0, color="0.3", linewidth=1)
    for side in (left, right):
        side.grid(axis="x", alpha=0.3)
    left.set_xlabel("rsum")
    right.set_xlabel("rsum")
    figure.savefig(HERE / "forest.png", dpi=110)


def plateau() -> None:
    """Ten seeds of four objectives over steps; all trials, with and without a first epoch."""
    rows = {run["run"]: run["row"] for run in read(STUDY / "runs.csv")}
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for entry in read(STUDY / "curves.csv"):
        lines[entry["run"]].append((float(entry["step"]), float(entry["validation_rsum"])))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained")
    seen: set[str] = set()
    for run, line in lines.items():
        label = rows[run]
        if label in CURVES:
            name = None if label in seen else short(label)
            seen.add(label)
            left.plot(
                *zip(*line, strict=True), color=CURVES[label], label=name, linewidth=1, alpha=0.8
            )
    left.set_title("validation rsum, ten seeds each, settings as chosen", loc="left", fontsize=10)
    left.set(xlabel="steps", ylim=(0, 290))
    left.legend(frameon=False, loc="lower right", fontsize=9)
    tried = {}
    for file in (STUDY / "tuned").glob("*.json"):
        told = json.loads(file.read_text())
        tried[told["row"]] = told["tried"]
    order = sorted(tried, key=lambda row: max(one["score"] or 0 for one in tried[row]))
    for place, row in enumerate(order):
        for one in tried[row]:
            if one["score"] is None:
                continue
            first = one["setting"]["first_epochs"]
            up = place + (0.18 if first else -0.18)
            right.plot(one["score"], up, "o", color="C2" if first else "C7", markersize=3.5)
    right.set_yticks(range(len(order)), [short(row) for row in order], fontsize=9)
    for colour, text in (("C2", "after one epoch of all negatives"), ("C7", "without")):
        right.plot([], [], "o", color=colour, markersize=4, label=text)
    right.set_title("validation rsum of all 24 trials", loc="left", fontsize=10)
    right.legend(loc="lower left", fontsize=9, frameon=False)
    for side in (left, right):
        side.grid(alpha=0.3)
    figure.savefig(HERE / "plateau.png", dpi=110)


if __name__ == "__main__":
    forest()
    plateau()
