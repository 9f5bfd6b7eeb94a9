"""Published and found, side by side: `python results/claims/pictures.py` draws what has ranks.

order-DATA.png: four losses on VSE++ and VSRN. cells-DATA.png: GOAL's fifteen cells as a heat map.
ranks-DATA.png: AOQ's cross-retrieval ranks; the paper prints no numbers for its own histogram, so
ours stands alone.
"""

import sys
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compute import DATA, published  # noqa: E402
from verdicts import Table, kept  # noqa: E402

from simgrad.evaluation import cross_ranks, histogram, metrics_of  # noqa: E402

LOSSES = ("triplet", "triplet-sh", "nt-xent", "smooth-ap")
ORDERS = ("1-bleeker-vsepp", "4-bleeker-vsrn")
TRIPLETS, PAIRS = ("con", "nca", "cir"), ("con", "lin", "sig", "lin-ms", "sig-ms")
CELLS = ("2-goal-vsepp", "5-goal-infinity")


def means_of(table: Table, metric: str) -> dict[str, float]:
    """By row, over seeds."""
    return {
        label: mean(metrics_of(one)[metric] for one in runs) for label, runs in table.ranks.items()
    }


def in_paper(name: str, metric: str) -> dict[str, float]:
    """By row, where the paper has it."""
    found = published(name)
    return {label: one.cells[metric][0] for label, one in found.items() if metric in one.cells}


def order(tables: dict[str, Table], path: Path) -> None:
    """Each paper's rsum on the left, ours on the right, joined by a line for each loss."""
    figure, panels = plt.subplots(1, len(tables), figsize=(4.6 * len(tables), 4.2), squeeze=False)
    for axes, (name, table) in zip(panels[0], tables.items(), strict=True):
        ours, theirs = means_of(table, "rsum"), in_paper(name, "rsum")
        for number, label in enumerate(LOSSES):
            ends = (theirs[label] - mean(theirs[one] for one in LOSSES),)
            ends += (ours[label] - mean(ours[one] for one in LOSSES),)
            axes.plot((0, 1), ends, "o-", color=f"C{number}", label=label)
        axes.set_xticks((0, 1), ("in the paper", "here"))
        axes.set_title(
            f"{name.partition('-')[2]}: rsum above the mean of four", loc="left", fontsize=10
        )
        axes.grid(axis="y", alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def cells(tables: dict[str, Table], metric: str, path: Path) -> None:
    """T across, P down: the paper's cells beside ours, each above (con, con)."""
    figure, panels = plt.subplots(
        len(tables), 2, figsize=(7.5, 3.8 * len(tables)), squeeze=False, layout="constrained"
    )
    for row, (name, table) in zip(panels, tables.items(), strict=True):
        for axes, found, where in zip(
            row,
            (in_paper(name, metric), means_of(table, metric)),
            ("in the paper", "here"),
            strict=True,
        ):
            values = np.array([[found[f"{t}, {p}"] for t in TRIPLETS] for p in PAIRS])
            values -= found["con, con"]
            reach = max(float(np.abs(values).max()), 1e-9)
            axes.imshow(values, cmap="RdBu", vmin=-reach, vmax=reach, aspect="auto")
            for (y, x), value in np.ndenumerate(values):
                ink = "white" if abs(value) > 0.6 * reach else "black"
                axes.text(x, y, f"{value:+.1f}", ha="center", va="center", fontsize=9, color=ink)
            axes.set_xticks(range(len(TRIPLETS)), TRIPLETS)
            axes.set_yticks(range(len(PAIRS)), PAIRS)
            title = f"{name.partition('-')[2]}, {metric} above (con, con), {where}"
            axes.set_title(title, loc="left", fontsize=9)
    _save(figure, path)


def ranks(table: Table, rows: tuple[str, ...], path: Path) -> None:
    """How many pairs stand at which cross-retrieval rank, a bar for each row."""
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for number, label in enumerate(rows):
        several = [histogram(cross_ranks(one)) for one in table.ranks[label]]
        names = list(several[0])
        shares = [100 * mean(one[name] / sum(one.values()) for one in several) for name in names]
        places = [place + 0.8 * number / len(rows) for place in range(len(names))]
        axes.bar(places, shares, width=0.8 / len(rows), label=label)
    axes.set_xticks([place + 0.3 for place in range(len(names))], names)
    axes.set_title(
        "% of true pairs by cross-retrieval rank, mean over seeds", loc="left", fontsize=10
    )
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw(here: Path = HERE) -> list[Path]:
    """Every picture that has ranks."""
    made = []
    for data in DATA:
        there = {name: kept(here / name / data) for name in (*ORDERS, *CELLS, "3a-aoq-vsrn")}
        orders = {name: there[name] for name in ORDERS if there[name].ranks}
        grids = {name: there[name] for name in CELLS if there[name].ranks}
        if orders:
            made.append(here / f"order-{data}.png")
            order(orders, made[-1])
        if grids:
            made.append(here / f"cells-{data}.png")
            cells(grids, "i2t_r1", made[-1])
        if there["3a-aoq-vsrn"].ranks:
            made.append(here / f"ranks-{data}.png")
            ranks(
                there["3a-aoq-vsrn"], ("online", "off-tri", "off-quin", "adap-off-quin"), made[-1]
            )
    return made


if __name__ == "__main__":
    print(*(draw() or ["nothing has ranks yet"]), sep="\n")
