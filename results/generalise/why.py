"""Why objectives differ: pictures of the kept parts, and the table of the mechanism.

    python results/generalise/why.py count STUDY PART        # PART/pushes.csv; needs weights
    python results/generalise/why.py draw                    # {order,curves,similarities}.png
    python results/generalise/why.py mechanism 4-mechanism   # 4-mechanism/mechanism.md

`draw` reads curves.csv, which collect.py keeps. `count` measures at each run's best checkpoint,
over the training batches, which share of the push falls on false negatives: captions that are right
but belong to another image. Where people judged only some pairs (Flickr8k), it is the share of the
push on judged pairs.
"""

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from analyse import REPLICATES, replicate_means
from analyse import read as read_runs

import simgrad
from simgrad.core.errors import InputError
from simgrad.core.spec import split_spec
from simgrad.core.typed import read_yaml
from simgrad.evaluation import Ranks, stand
from simgrad.evaluation.wording import failures, lead
from simgrad.retriever.counting import count_run
from simgrad.runs.naming import label_of
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study

HERE = Path(__file__).resolve().parent
Line = dict[str, str]
COLUMNS = ("run", "label", "direction", "false_share")


def read(path: Path, after: str) -> list[Line]:
    """The lines of a kept file; an error says which command writes it."""
    if not path.is_file():
        raise InputError(f"{path}: not there yet: `{after}` writes it.")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def curves_of(folder: Path) -> list[Line]:
    """A line for each epoch of each test run, with the label of its row."""
    after = f"collect.py keep STUDY {folder.name}"
    labels = {line["run"]: line["objective"] for line in read(folder / "tests.csv", after)}
    found = []
    for line in read(folder / "curves.csv", after):
        if line["run"] in labels:
            sides = [float(line[f"{side}_effective"]) for side in ("i2t", "t2i")]
            known = [number for number in sides if not math.isnan(number)]
            told = {"label": labels[line["run"]], "effective": str(mean(known)) if known else ""}
            found.append(line | told)
    return found


def count(study: Study, batches: int | None = None) -> Iterator[dict[str, Any]]:
    """The share of the push on false negatives, of each finished run and direction."""
    for label, runs in study.groups.items():
        for run in runs:
            figures = count_run(simgrad.open(run.path), batches=batches).corrected.summary()
            for direction, found in figures.items():
                if "false_share" not in found:
                    raise InputError(f"{run.path}: nobody knows which pairs of its data are right.")
                share = found["false_share"][0]
                yield dict(zip(COLUMNS, (run.name, label, direction, round(share, 6)), strict=True))


def by_label(lines: Sequence[Line], key: str) -> dict[str, dict[int, list[float]]]:
    """label -> epoch -> the values of all runs; what was not measured is left out."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line[key]:
            found[line["label"]][int(line["epoch"])].append(float(line[key]))
    return found


def _panel(axes: Any, lines: Sequence[Line], key: str, title: str) -> None:
    """A line for each objective, the median of its runs, with a band of their middle half."""
    for number, (label, epochs) in enumerate(by_label(lines, key).items()):
        places, colour = list(epochs), f"C{number}"
        low, middle, high = np.percentile(list(epochs.values()), (25, 50, 75), axis=1)
        axes.plot(places, middle, color=colour, linewidth=2, label=label_of(label))
        axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel("epochs")
    axes.grid(alpha=0.3)


def draw_curves(parts: dict[str, list[Line]], path: Path) -> None:
    """How well each objective retrieves while it trains."""
    figure, panels = plt.subplots(
        1, len(parts), figsize=(5.5 * len(parts), 4.2), layout="constrained", squeeze=False
    )
    for axes, (name, lines) in zip(panels[0], parts.items(), strict=True):
        _panel(axes, lines, "val", f"{name}: validation rsum")
    shown = panels[0][-1].get_legend_handles_labels()
    figure.legend(*shown, frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_similarities(parts: dict[str, list[Line]], path: Path) -> None:
    """How many negatives share a query's push, and how far its similarities spread."""
    figure, panels = plt.subplots(
        2, len(parts), figsize=(5.5 * len(parts), 6.5), layout="constrained", squeeze=False
    )
    for column, (name, lines) in enumerate(parts.items()):
        above, below = panels[0][column], panels[1][column]
        _panel(above, lines, "effective", f"{name}: negatives that share a query's push")
        _panel(below, lines, "spread", f"{name}: spread of a query's similarities")
        above.set_yscale("log")
        above.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    shown = panels[0][-1].get_legend_handles_labels()
    figure.legend(*shown, frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_order(runs: Sequence[Any], path: Path) -> None:
    """Each replicate's test rsum less that of nt-xent: a dot for each, a bar for the mean."""
    means = replicate_means(runs)
    data_sets = list(dict.fromkeys(data for data, _, _ in means))
    labels = list(dict.fromkeys(objective for _, _, objective in means))
    gaps = {
        (data, label): [
            value - means[data, replicate, "nt-xent"]
            for (where, replicate, of), value in sorted(means.items())
            if (where, of) == (data, label)
        ]
        for data in data_sets
        for label in labels
    }
    labels.sort(key=lambda label: mean(mean(gaps[data, label]) for data in data_sets))
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for number, data in enumerate(data_sets):
        for place, label in enumerate(labels):
            up = place + (0.15 if number == 0 else -0.15)
            values = gaps[data, label]
            axes.plot(values, [up] * len(values), "o", color=f"C{number}", markersize=4, alpha=0.6)
            axes.plot([mean(values)] * 2, [up - 0.12, up + 0.12], color=f"C{number}", linewidth=3)
        axes.plot([], [], "o", color=f"C{number}", label=data)
    axes.axvline(0, color="0.4", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(labels)), [label_of(label) for label in labels])
    title = "test rsum less that of nt-xent: a dot for each replicate, a bar for the mean"
    axes.set_title(title, loc="left", fontsize=12)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_pushes(lines: Sequence[Line], path: Path) -> None:
    """Which share of the push falls on right captions: a dot for each run, a bar for the mean."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        shares[line["label"]][line["direction"]].append(100 * float(line["false_share"]))
    order = sorted(shares, key=lambda label: mean(map(mean, shares[label].values())))
    for number, (direction, name) in enumerate((("i2t", "images"), ("t2i", "captions"))):
        for place, label in enumerate(order):
            values, up = shares[label][direction], place + (0.15 if number else -0.15)
            axes.barh(up, mean(values), height=0.28, color=f"C{number}", alpha=0.35)
            axes.plot(values, [up] * len(values), "o", color=f"C{number}", markersize=4)
        axes.plot([], [], "o", color=f"C{number}", label=f"{name} as queries")
    axes.set_yticks(range(len(order)), order)
    axes.set_title("share of the push on false negatives, %", loc="left", fontsize=12)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw(folders: Sequence[Path], output: Path) -> list[Path]:
    """Pictures of one part or of several side by side; the pushes where they were counted."""
    parts = {folder.name: curves_of(folder) for folder in folders}
    draw_curves(parts, output / "curves.png")
    draw_similarities(parts, output / "similarities.png")
    drawn = [output / "curves.png", output / "similarities.png"]
    for folder in folders:
        if (folder / "pushes.csv").is_file():
            drawn.append(folder / "pushes.png")
            draw_pushes(read(folder / "pushes.csv", "why.py count STUDY PART"), drawn[-1])
    return drawn


def cell_of(spec: str) -> tuple[str, str]:
    """goal(triplet=con, pair=sig, lambda=0.5) -> what it is, and its lambda."""
    name, given = split_spec(spec, "objective")
    lam = given.pop("lambda", "default")
    inside = ", ".join(f"{key}={value}" for key, value in given.items())
    return (f"{name}({inside})" if inside else name), lam


def mechanism(folder: Path) -> str:
    """Of each objective and lambda the best rate and first epoch on validation, and its test."""
    plan = plan_from_dict(read_yaml(folder / "study.yaml"), str(folder / "study.yaml"))
    about = {row.label: plan.recipe(row, 0) for row in plan.rows}
    best: dict[str, float] = defaultdict(float)  # of each run, on validation
    for line in curves_of(folder):
        best[line["run"]] = max(best[line["run"]], float(line["val"]))
    runs: dict[str, list[Line]] = defaultdict(list)
    for line in read(folder / "tests.csv", f"collect.py keep STUDY {folder.name}"):
        runs[line["objective"]].append(line)  # by row of the study
    chosen: dict[tuple[str, str], tuple[float, str]] = {}
    for label, several in runs.items():
        if any(line["outcome"] != "diverged" for line in several):
            place = cell_of(about[label].objective)
            score = mean(best.get(line["run"], 0.0) for line in several)
            chosen[place] = max(chosen.get(place, (-1.0, "")), (score, label))
    ranks = {place: _ranks(folder, runs[label]) for place, (_, label) in chosen.items()}
    lines = ["# Soft maximum, margin or lambda?", ""]
    lines += [
        "By `why.py mechanism`. Exploratory. Test rsum, mean over seeds, of the rate and",
        "the first epochs that were best on validation; in brackets these two.",
        "",
    ]
    kinds = sorted({kind for kind, _ in chosen})
    lambdas = sorted({lam for _, lam in chosen})
    lines += ["| lambda | " + " | ".join(kinds) + " |", "|---" * (1 + len(kinds)) + "|"]
    for lam in lambdas:
        cells = []
        for kind in kinds:
            if (kind, lam) not in chosen:
                cells.append("diverged")
                continue
            told = about[chosen[kind, lam][1]]
            score = mean(simgrad.evaluation.metrics_of(one)["rsum"] for one in ranks[kind, lam])
            cells.append(f"{score:.1f} (lr {told.lr:g}, {told.first_epochs})")
        lines.append(f"| {lam} | " + " | ".join(cells) + " |")
    for lam in lambdas:
        some = {kind: ranks[kind, lam] for kind in kinds if (kind, lam) in chosen}
        if len(some) > 1:
            standing = stand(some)
            lines += ["", f"lambda {lam}: {lead(standing)}", *failures(standing)]
    return "\n".join(lines) + "\n"


def _ranks(folder: Path, lines: Sequence[Line]) -> list[Ranks]:
    """Of the runs of a row; one that diverged found nothing."""
    trained = [line for line in lines if line["outcome"] != "diverged"]
    found = [Ranks.load(folder / "ranks" / f"{line['run']}.parquet") for line in trained]
    return found + [found[0].worst()] * (len(lines) - len(trained))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    counted = commands.add_parser("count")
    counted.add_argument("study")
    counted.add_argument("part")
    counted.add_argument("--batches", type=int, help="of each run; by default all")
    commands.add_parser("draw")
    commands.add_parser("mechanism").add_argument("part")
    told = parser.parse_args()
    if told.command == "draw":
        runs = read_runs(HERE / "runs.csv")
        draw_order(runs, HERE / "order.png")
        print(HERE / "order.png", *draw([HERE / part for part in REPLICATES], HERE), sep="\n")
        return
    folder = HERE / told.part
    if told.command == "count":
        lines = list(count(Study.open(told.study), told.batches))
        folder.mkdir(exist_ok=True)
        with (folder / "pushes.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    else:
        (folder / "mechanism.md").write_text(mechanism(folder))
        print((folder / "mechanism.md").read_text(), end="")


if __name__ == "__main__":
    main()
