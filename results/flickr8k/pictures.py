"""The pictures of README.md, from the files of study/, sizes/ and negatives/ beside it.

`python results/flickr8k/pictures.py` draws them.
"""

from collections import defaultdict
from statistics import mean

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from compute import AT_SIZES, BASELINE, HERE, SIZES, read, short, trials_of

# (row, trial): the best single trial of each, and the one that was chosen.
SHOWN = {
    ("triplet-sh", "2"),
    ("triplet-sh", "20"),
    ("goal-triplet=con-pair=lin", "14"),
    ("goal-triplet=con-pair=lin", "20"),
}
COLOURS = {
    "triplet-sh": "C4",
    "goal cir, sig-ms": "C3",
    "focused-deviance": "C2",
    "nt-xent": "C0",
    "siglip": "C1",
}


def rsums(folder: str) -> dict[str, list[float]]:
    """The test rsum of each run, by row."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in read(f"{folder}/runs.csv"):
        found[run["row"]].append(float(run["rsum"]))
    return found


def forest() -> None:
    """Every seed's test rsum; and the difference from triplet-sh, with 95 % intervals."""
    seeds = rsums("study")
    gaps = {line["label"]: line for line in read("study/against.csv") if line["base"] == BASELINE}
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
        if label == BASELINE:
            right.plot(0, place, "o", color="0.3")
            continue
        gap, low, high = (float(gaps[label][key]) for key in ("difference", "low", "high"))
        sure = float(gaps[label]["p"]) < 0.05
        right.plot([low, high], [place, place], color="C3" if sure else "0.6", linewidth=2)
        right.plot(gap, place, "o", color="C3" if sure else "0.3")
    left.set_yticks(range(len(order)), [short(label) for label in order])
    left.set_title("test rsum of ten seeds (siglip nine), and their mean", loc="left", fontsize=10)
    title = "difference from triplet-sh, 95 %\n(red: told apart from it, Holm)"
    right.set_title(title, loc="left", fontsize=10)
    right.axvline(0, color="0.3", linewidth=1)
    for side in (left, right):
        side.grid(axis="x", alpha=0.3)
    left.set_xlabel("rsum")
    right.set_xlabel("rsum")
    figure.savefig(HERE / "forest.png", dpi=110)


def plateau() -> None:
    """Two settings of two objectives, three seeds each; all trials, with a first epoch or none."""
    tried = {row: told["tried"] for row, told in trials_of("study").items()}
    first = {
        (row, str(one["number"])): one["setting"]["first_epochs"]
        for row, trials in tried.items()
        for one in trials
    }
    lines: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for entry in read("study/finalists.csv"):
        key = (entry["row"], entry["trial"], entry["seed"])
        lines[key].append((float(entry["step"]), float(entry["validation_rsum"])))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained")
    for (row, trial, seed), line in lines.items():
        if (row, trial) in SHOWN:
            colour = "C2" if first[row, trial] else "C7"
            name = f"{short(row)}, {'one epoch first' if first[row, trial] else 'none first'}"
            left.plot(
                *zip(*line, strict=True),
                color=colour,
                linestyle="-" if row == BASELINE else "--",
                label=name if seed == "1000" else None,
            )
    left.set_title(
        "validation: best single trial and chosen setting, three seeds", loc="left", fontsize=10
    )
    left.set(xlabel="steps", ylim=(0, 290))
    left.legend(frameon=False, loc="upper left", fontsize=9, bbox_to_anchor=(0, -0.11), ncols=2)
    order = sorted(tried, key=lambda row: max(one["score"] or 0 for one in tried[row]))
    for place, row in enumerate(order):
        for one in tried[row]:
            if one["score"] is None:
                continue
            begun = one["setting"]["first_epochs"]
            up = place + (0.18 if begun else -0.18)
            right.plot(one["score"], up, "o", color="C2" if begun else "C7", markersize=3.5)
    right.set_yticks(range(len(order)), [short(row) for row in order], fontsize=9)
    for colour, text in (("C2", "after one epoch of all negatives"), ("C7", "without")):
        right.plot([], [], "o", color=colour, markersize=4, label=text)
    right.set_title("validation rsum of all 24 trials", loc="left", fontsize=10)
    right.legend(loc="upper left", fontsize=9, frameon=False, bbox_to_anchor=(0, -0.08), ncols=2)
    for side in (left, right):
        side.grid(alpha=0.3)
    figure.savefig(HERE / "plateau.png", dpi=110)


def sizes() -> None:
    """Test rsum over the size of the training set, and over the number of negatives."""
    some, whole, several = rsums("sizes"), rsums("study"), rsums("negatives")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    middle = {}
    photos_of = {size: int(size.replace(",", "")) for size in SIZES}
    for photos, name in [(count, name) for name, count in photos_of.items()] + [(6000, "")]:
        groups = [some[f"{row}, {name}"] if name else whole[AT_SIZES[row]] for row in AT_SIZES]
        middle[photos] = sum(mean(values) for values in groups) / len(groups)
    for row, label in AT_SIZES.items():
        colour = COLOURS[row]
        line = [(count, some[f"{row}, {name}"]) for name, count in photos_of.items()]
        line.append((6000, whole[label]))
        places = [count for count, _ in line]
        above = [mean(values) - middle[count] for count, values in line]
        left.plot(places, above, "-", color=colour, label=short(label), linewidth=1.5)
        for count, values in line:
            each = [value - middle[count] for value in values]
            left.plot([count] * len(each), each, "o", color=colour, markersize=3, alpha=0.6)
    left.axhline(0, color="0.3", linewidth=1)
    named = [f"{count:,}\n(mean {value:.0f})" for count, value in middle.items()]
    left.set_xscale("log", base=2)
    left.set_xticks(list(middle), named, fontsize=8)
    left.minorticks_off()
    left.set_title("test rsum above the mean of the five, by photos", loc="left", fontsize=10)
    left.legend(frameon=False, fontsize=9)
    kept = {int(row.removeprefix("k=")): values for row, values in several.items()}
    right.plot(list(kept), [mean(values) for values in kept.values()], "-", color="0.3")
    for count, values in kept.items():
        right.plot([count] * len(values), values, "o", color="0.3", markersize=4, alpha=0.7)
    right.set_xscale("log", base=2)
    right.set_xticks(list(kept), [str(count) for count in kept])
    right.minorticks_off()
    title = "test rsum of the triplet loss over the k hardest negatives"
    right.set_title(title, loc="left", fontsize=10)
    right.set_xlabel("k")
    for side in (left, right):
        side.grid(alpha=0.3)
    figure.savefig(HERE / "sizes.png", dpi=110)


if __name__ == "__main__":
    forest()
    plateau()
    sizes()
