"""What do the defaults lose against a search? `python results/defaults.py` writes defaults.md.

For each model with searches that were kept: the trials at its default objective near its default
rate, beside the setting which the search of the same objective chose, on validation. Then the first
trial of each objective in the study of VSE++, which is its own defaults. With `--check` it computes
the page again and compares.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from simgrad.models import models
from simgrad.runs.naming import label_of

HERE = Path(__file__).resolve().parent
PAGE = HERE / "defaults.md"
NEAR = 1.5  # a rate from a default's by this factor at most
ONE = "four rates, one seed each"


@dataclass(frozen=True)
class Searches:
    """Searches of a model's default objective on one data set."""

    model: str  # as a spec: its default is what the code says
    data: str
    files: tuple[str, ...]
    how: str
    row: str = ""  # as the study calls it; else by its default objective


SEARCHES = (
    Searches("vse++", "Flickr8k, 8 draws of photos", ("generalise/flickr8k/tuned/{}-r*.json",),
             "12 trials, each draw"),
    Searches("vse++", "part of COCO, 5 draws", ("generalise/coco/tuned/{}-r*.json",),
             "12 trials, each draw"),
    Searches("light", "Flickr8k, official split",
             ("light/first/tuned/{}.json", "light/second/tuned/{}.json"), "24 trials, twice"),
    Searches("towers", "Flickr8k, text network trained", ("towers/{}.json",), ONE,
             "text-trained-nt-xent"),
    Searches("towers", "Flickr8k, low-rank changes", ("towers/{}.json",), ONE, "lora-nt-xent"),
    Searches("towers", "Flickr8k, both locked", ("towers/{}.json",), ONE, "locked-nt-xent"),
)  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """What a search tried and chose."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def searched(told: dict[str, Any]) -> float:
    """What the chosen setting has, over all the seeds it was trained with."""
    return mean([told["chosen"]["score"], *told["chosen"].get("repeats", [])])


def losses(one: Searches) -> list[float]:
    """What each trial near the default lacks: its objective, its rate, no first epoch."""
    usual = models.parse(one.model).usual
    row = one.row or usual.objective.partition("(")[0]
    paths = [path for file in one.files for path in sorted(HERE.glob(file.format(row)))]
    return [
        searched(told) - (trial["score"] or 0.0)
        for told in map(read, paths)
        for trial in told["tried"]
        if usual.lr / NEAR <= trial["setting"]["lr"] <= usual.lr * NEAR
        and not trial["setting"].get("first_epochs")
    ]


def first_trials() -> Iterator[tuple[str, float, float, int]]:
    """Of each objective of the study: its first trial, the chosen setting, seeds of the first."""
    for path in sorted((HERE / "flickr8k/study/tuned").glob("*.json")):
        told = read(path)
        first = told["tried"][0]
        assert (first["how"], first["setting"]["lr"]) == ("start", 2e-3)
        scores = [first["score"], *first.get("repeats", [])]
        yield _spoken(told["row"]), mean(scores), searched(told), len(scores)


def _spoken(row: str) -> str:
    """goal-triplet=nca-pair=sig -> goal (nca, sig)"""
    kind, *settings = row.split("-triplet=")
    if not settings:
        return row
    triplet, _, pair = settings[0].partition("-pair=")
    return label_of(f"{kind}(triplet={triplet}, pair={pair})")


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def page() -> str:
    """All of it as Markdown."""
    lines = [
        "# What the defaults lose against a search",
        "",
        "By `python results/defaults.py`. **Exploratory**, in rsum on validation photos. A *loss*",
        "is how much less a default has than the setting that a search of the same objective",
        "chose. That setting was chosen from many, so it may be a little worse than it looks.",
        "",
        "## What `simgrad train` takes where nobody names objective or rate",
        "",
        "These are trials of searches of the default objective, without a first epoch, at rates",
        f"up to {NEAR:g} times higher or lower than the default. Of `vse++` and `light` the",
        "defaults themselves were not trained: lambda and focus of their trials were random.",
        "",
        _line(("model", "default", "data", "search", "trials", "median loss", "largest")),
        _line(["---"] * 7),
    ]
    for one in SEARCHES:
        usual, lost = models.parse(one.model).usual, losses(one)
        told = (f"{median(lost):.1f}", f"{max(lost):.1f}")
        default = f"{usual.objective}, {usual.lr:g}"
        lines.append(_line((one.model, default, one.data, one.how, len(lost), *told)))
    rest = sorted({model.name for model in models} - {one.model for one in SEARCHES})
    lines += [
        "",
        f"Not measured: {', '.join(rest)}.",
        "",
        "## Each objective's own defaults at a rate of 2e-3, after one epoch of all negatives",
        "",
        "The first trial of 24 in [the study of VSE++](flickr8k/study/README.md), Flickr8k's",
        "official split: what `simgrad choose` tries first for each.",
        "",
        _line(("objective", "its defaults", "seeds", "searched, three seeds", "loss")),
        _line(["---"] * 5),
    ]
    found = sorted(first_trials(), key=lambda one: one[2] - one[1])
    for name, first, best, seeds in found:
        lines.append(_line((name, f"{first:.1f}", seeds, f"{best:.1f}", f"{best - first:.1f}")))
    highest = [one[0] for one in sorted(found, key=lambda one: -one[1])]
    lines += [
        "",
        f"With their defaults {highest[0]}, {highest[1]} and {highest[2]} have the",
        "highest scores; there is no interval. [Who is ahead](generalise/README.md) was asked of",
        "searched settings alone, so it says nothing of defaults.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    made = page()
    if "--check" in sys.argv:
        same = PAGE.read_text() == made
        print(f"{PAGE.name} computed again: {'the same' if same else 'DIFFERS'}")
        sys.exit(not same)
    PAGE.write_text(made)
    print(made, end="")


if __name__ == "__main__":
    main()
