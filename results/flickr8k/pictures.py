"""The pictures of README.md, from the tables and curves beside it.

python results/flickr8k/pictures.py
"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
STUDIES = {
    "tuned": "VSE++, 7,050 steps, 8 trials each",
    "vse": "VSE++, 3,525 steps, 4 trials each",
    "towers": "pretrained networks, both locked, 3 rates each",
}
CURVES = {
    "nt-xent": "C0",
    "siglip": "C1",
    "triplet": "C2",
    "goal-con-sig": "C3",
    "triplet-sh": "C4",
}


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def forest() -> None:
    """Test rsum and its 95 % interval, for each study by itself."""
    tables = {
        name: [row for row in read(HERE / name / "table.csv") if row["metric"] == "rsum"]
        for name in STUDIES
    }
    heights = [len(rows) for rows in tables.values()]
    figure, sides = plt.subplots(
        len(tables), 1, sharex=True, figsize=(8, 7), height_ratios=heights, layout="constrained"
    )
    for side, (name, rows) in zip(sides, tables.items(), strict=True):
        rows = sorted(rows, key=lambda row: float(row["mean"]))
        for place, row in enumerate(rows):
            mean, low, high = (float(row[key]) for key in ("mean", "low", "high"))
            side.plot([low, high], [place, place], color="0.5", linewidth=2)
            side.plot(mean, place, "o", color="C0")
        side.set_yticks(range(len(rows)), [f"{row['label']} ({row['seeds']})" for row in rows])
        side.set_ylim(-0.7, len(rows) - 0.3)
        side.set_title(STUDIES[name], loc="left", fontsize=10)
        side.grid(axis="x", alpha=0.3)
    sides[-1].set_xlabel("test rsum and its 95 % interval; (seeds)")
    figure.savefig(HERE / "forest.png", dpi=110)


def curves() -> None:
    """Validation rsum over steps: who leaves the plateau, and when."""
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in read(HERE / "vse" / "curves.csv"):
        runs[row["run"]].append((float(row["step"]), float(row["validation_rsum"])))
    figure, side = plt.subplots(figsize=(8, 4), layout="constrained")
    for number, name in enumerate(CURVES):
        for seed in range(3):
            line = runs.get(f"{name}-s{seed}")
            if line:
                label = name if seed == 0 else None
                side.plot(*zip(*line, strict=True), color=f"C{number}", label=label, linewidth=1.4)
    side.set(xlabel="steps", ylabel="validation rsum", ylim=(0, 280))
    side.grid(alpha=0.3)
    side.legend(frameon=False)
    figure.savefig(HERE / "plateau.png", dpi=110)


if __name__ == "__main__":
    forest()
    curves()
