"""May the light model speak for VSE++? `python results/light/compute.py` writes pairs.md.

Eight objectives on Flickr8k (official splits), tuned alike on both models, ten test seeds each.
VSE++: the study of results/flickr8k/study. Light: two searches, whose ranges of rates differ. Two
objectives are told apart where all pairs of the eight are tested together at 5 % (Dunnett's T3, as
in `simgrad.evaluation.stand`). With `--check` it computes the page again and compares.
"""

import csv
import math
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev

from simgrad.evaluation import Ranks, compare, metrics_of
from simgrad.evaluation.crossed import Crossed, sureness

HERE = Path(__file__).resolve().parent
VSE = HERE.parent / "flickr8k" / "study"
OBJECTIVES = (
    "focused-deviance",
    "goal(triplet=nca, pair=sig)",
    "goal(triplet=cir, pair=sig-ms)",
    "nt-xent",
    "siglip",
    "triplet-sh",
    "smooth-ap",
    "triplet",
)
PAIRS = math.comb(len(OBJECTIVES), 2)
LEVEL = 0.05


def ranks_of(folder: Path) -> dict[str, list[Ranks]]:
    """By objective, of all its test runs."""
    found: dict[str, list[Ranks]] = defaultdict(list)
    with open(folder / "runs.csv", newline="") as file:
        for line in csv.DictReader(file):
            if line["row"] in OBJECTIVES:
                found[line["row"]].append(Ranks.load(folder / "ranks" / f"{line['run']}.parquet"))
    return found


def rsum_of(runs: list[Ranks]) -> Crossed:
    whole = Crossed.of(runs)
    place = whole.names.index("rsum")
    return Crossed(("rsum",), whole.values[:, :, place : place + 1], whole.fold)


def gaps_of(systems: dict[str, list[Ranks]]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Of each pair: the first minus the second, half its simultaneous interval, p."""
    crossed, found = {name: rsum_of(systems[name]) for name in OBJECTIVES}, {}
    for first, second in combinations(OBJECTIVES, 2):
        sure = sureness(crossed[second], crossed[first])
        gap, error = float((crossed[first].mean - crossed[second].mean)[0]), float(sure.error[0])
        reach = sure.quantile(LEVEL, comparisons=PAIRS) * error
        found[first, second] = gap, reach, sure.tail(gap / error, comparisons=PAIRS)
    return found


def short(label: str) -> str:
    return label.replace("goal(triplet=", "goal (").replace("pair=", "")


def page() -> str:
    vse, lights = ranks_of(VSE), {name: ranks_of(HERE / name) for name in ("first", "second")}
    scores = {
        name: {label: [metrics_of(run)["rsum"] for run in runs] for label, runs in some.items()}
        for name, some in {"VSE++": vse, **lights}.items()
    }
    lines = [
        "# Pairs of objectives on both models",
        "",
        "By `python results/light/compute.py`. Test rsum, mean ± standard deviation over seeds.",
        "",
        "| objective | VSE++ | light, first search | light, second search |",
        "|---|---|---|---|",
    ]
    for label in OBJECTIVES:
        cells = [f"{mean(x[label]):.1f} ± {stdev(x[label]):.1f}" for x in scores.values()]
        lines.append(f"| {short(label)} | " + " | ".join(cells) + " |")
    head = (
        "Light minus VSE++, the same objective on the same test images (95 % intervals of each "
        "alone, over seeds and images; the luck of the search is not in them):"
    )
    lines += [
        "",
        head,
        "",
        "| objective | first search | second search |",
        "|---|---|---|",
    ]
    for label in OBJECTIVES:
        found = [compare(vse[label], some[label])["rsum"] for some in lights.values()]
        cells = [f"{one.difference:+.1f} [{one.low:.1f}, {one.high:.1f}]" for one in found]
        lines.append(f"| {short(label)} | {cells[0]} | {cells[1]} |")
    means = {name: {label: mean(x) for label, x in some.items()} for name, some in scores.items()}
    best = max(means["VSE++"].values())
    own = gaps_of(vse)
    for name in lights:
        leader = max(means[name], key=lambda label: means[name][label])
        other = gaps_of(lights[name])
        both = [pair for pair in own if own[pair][2] < LEVEL and other[pair][2] < LEVEL]
        reversed_ = [pair for pair in both if own[pair][0] * other[pair][0] < 0]
        alone = sum(own[pair][2] < LEVEL for pair in own)
        light = sum(other[pair][2] < LEVEL for pair in own)
        told = (
            f"- Told apart, of {PAIRS} pairs: {alone} by VSE++, {light} by light, {len(both)} by "
            f"both; {len(reversed_)} of these reversed."
        )
        there = means["VSE++"][leader]
        lost = (
            f"- Regret: light's leader is {short(leader)}, which has {there:.1f} with VSE++, where "
            f"the best has {best:.1f}: {best - there:.1f} lost."
        )
        lines += [
            "",
            f"## {name.capitalize()} search",
            "",
            told,
            lost,
            "",
            "| pair | VSE++ | light | |",
            "|---|---|---|---|",
        ]
        for pair in own:
            words = [("told apart" if gaps[pair][2] < LEVEL else "open") for gaps in (own, other)]
            mark = "reversed" if pair in reversed_ else "both" if pair in both else "/".join(words)
            cells = [
                f"{gap:+.1f} [{gap - reach:.1f}, {gap + reach:.1f}]"
                for gap, reach, _ in (own[pair], other[pair])
            ]
            lines.append(
                f"| {short(pair[0])} - {short(pair[1])} | {cells[0]} | {cells[1]} | {mark} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    path = HERE / "pairs.md"
    if "--check" in sys.argv[1:]:
        same = path.read_text() == page()
        print("pairs.md computed again: " + ("the same" if same else "DIFFERS"))
        sys.exit(not same)
    path.write_text(page())
    print(path.read_text(), end="")


if __name__ == "__main__":
    main()
