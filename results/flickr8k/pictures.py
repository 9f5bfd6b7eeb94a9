"""The pictures of README.md, from the tables and curves beside it.

`python results/flickr8k/pictures.py` draws them.
"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
STUDIES = {
    "tuned": "VSE++, 7,050 steps: mean loss, clip searched, 8 trials each",
    "vse": "VSE++, 3,525 steps: losses as published, clip 2, all captions positive, 6 trials each",
    "vse/earlier": "VSE++, 3,525 steps: mean loss, clip 1, own pair positive, 4 trials each",
    "towers": "pretrained networks, 1,180 steps, 4 rates each",
}
SETTINGS = {
    "vse/earlier": "mean loss, clip 1, own pair positive",
    "vse": "losses as published, clip 2, all captions positive",
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
        len(tables), 1, sharex=True, figsize=(8, 10.5), height_ratios=heights, layout="constrained"
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
    """Validation rsum over steps, in both settings: who leaves the plateau, and when."""
    figure, sides = plt.subplots(1, 2, sharey=True, figsize=(9, 4), layout="constrained")
    for side, (study, title) in zip(sides, SETTINGS.items(), strict=True):
        runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in read(HERE / study / "curves.csv"):
            runs[row["run"]].append((float(row["step"]), float(row["validation_rsum"])))
        for name, colour in CURVES.items():
            for seed in range(3):
                line = runs[f"{name}-s{seed}"]
                label = name if seed == 0 else None
                side.plot(*zip(*line, strict=True), color=colour, label=label, linewidth=1.4)
        side.set_title(title, loc="left", fontsize=10)
        side.set(xlabel="steps", ylim=(0, 280))
        side.grid(alpha=0.3)
    sides[0].set_ylabel("validation rsum")
    sides[1].legend(frameon=False, loc="lower right")
    figure.savefig(HERE / "plateau.png", dpi=110)


def sizes() -> None:
    """Test rsum over the size of the training set, with intervals; best and last validation."""
    rows = [row for row in read(HERE / "sizes" / "table.csv") if row["metric"] == "rsum"]
    runs = read(HERE / "sizes" / "runs.csv")
    last = {
        row["run"]: float(row["validation_rsum"]) for row in read(HERE / "sizes" / "curves.csv")
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    names = list(dict.fromkeys(row["label"].rsplit(", ", 1)[0] for row in rows))
    for number, name in enumerate(names):
        own = [row for row in rows if row["label"].rsplit(", ", 1)[0] == name]
        places = [float(row["group"].split()[0].replace(",", "")) for row in own]
        means = [float(row["mean"]) for row in own]
        ends = [[float(row[end]) for row in own] for end in ("low", "high")]
        beside = [place * (1 + 0.025 * (number - 1.5)) for place in places]
        errors = [[abs(m - e) for m, e in zip(means, end, strict=True)] for end in ends]
        left.errorbar(beside, means, errors, fmt="o-", label=name, linewidth=1.4, capsize=2)
        lost = []
        for row in own:
            some = [run for run in runs if run["row"] == row["label"]]
            falls = [float(run["validation_rsum"]) - last[run["run"]] for run in some]
            lost.append(sum(falls) / len(falls))
        right.plot(places, lost, "o-", linewidth=1.4)
    for side in (left, right):
        side.set_xscale("log")
        side.set_xticks(places, [f"{place:,.0f}" for place in places])
        side.minorticks_off()
        side.set_xlabel("training photos")
        side.grid(alpha=0.3)
    left.set_title("test rsum and its 95 % interval", loc="left", fontsize=10)
    right.set_title("validation lost from its best to the end", loc="left", fontsize=10)
    left.legend(frameon=False, loc="lower right")
    figure.savefig(HERE / "sizes" / "sizes.png", dpi=110)


if __name__ == "__main__":
    forest()
    curves()
    sizes()
