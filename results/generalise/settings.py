"""Exploratory: what does a fixed rate lose against a search? From the searches that were kept.

    python results/generalise/settings.py            # -> settings.md, plateau.png
    python results/generalise/settings.py --check    # the same, compared with the file

Each search tried six settings with and without a first epoch of all negatives. All but the rate was
drawn at random. A trial's loss is what its validation rsum lacks to that of the setting which the
search of the same objective and replicate chose (the mean of its three seeds).
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from simgrad.core.errors import InputError
from simgrad.runs.naming import label_of

HERE = Path(__file__).resolve().parent
PARTS = ("flickr8k", "coco")
BANDS = ((5e-4, 1e-3), (1e-3, 2e-3), (2e-3, 4e-3), (4e-3, 1.2e-2))
LOST = 100.0  # rsum: a trial that lacks so much has not learned to retrieve
CELLS = "Each cell: the median loss, the largest one; how many trials lost more than 100."


@dataclass(frozen=True)
class Trial:
    """One setting of a search, trained once."""

    data: str
    objective: str
    replicate: int
    rate: float
    first_epochs: int
    loss: float


def trials(folder: Path, part: str) -> Iterator[Trial]:
    """All trials of a part, from tuned/."""
    for path in sorted((folder / part / "tuned").glob("*.json")):
        told = json.loads(path.read_text())
        name, _, replicate = told["row"].rpartition("-r")
        searched = mean([told["chosen"]["score"], *told["chosen"]["repeats"]])
        for one in told["tried"]:
            setting, score = one["setting"], one["score"] or 0.0
            yield Trial(
                part, name, int(replicate), setting["lr"], setting["first_epochs"], searched - score
            )


def _luck(folder: Path) -> Iterator[float]:
    """By how much the trial of each chosen setting is higher than its repetitions."""
    for part in PARTS:
        for path in sorted((folder / part / "tuned").glob("*.json")):
            chosen = json.loads(path.read_text())["chosen"]
            yield chosen["score"] - mean(chosen["repeats"])


def table(found: Sequence[Trial], first_epochs: int) -> list[str]:
    """A line for each objective and data set, a column for each band of rates."""
    heads = [f"{low:g} to {high:g}" for low, high in BANDS]
    lines = ["| objective | data | " + " | ".join(heads) + " |", "|---" * (2 + len(BANDS)) + "|"]
    for objective in sorted({trial.objective for trial in found}):
        for data in PARTS:
            cells = []
            for low, high in BANDS:
                losses = [
                    trial.loss
                    for trial in found
                    if (trial.objective, trial.data, trial.first_epochs)
                    == (objective, data, first_epochs)
                    and low <= trial.rate < high
                ]
                lost = sum(loss > LOST for loss in losses)
                cells.append(f"{median(losses):.0f}, {max(losses):.0f}; {lost} of {len(losses)}")
            lines.append(f"| {spoken(objective)} | {data} | " + " | ".join(cells) + " |")
    return lines


def spoken(row: str) -> str:
    """goal-triplet=nca-pair=sig -> goal (nca, sig)"""
    kind, *settings = row.split("-triplet=")
    if not settings:
        return row
    triplet, _, pair = settings[0].partition("-pair=")
    return label_of(f"{kind}(triplet={triplet}, pair={pair})")


def page(folder: Path) -> str:
    """All of it as Markdown."""
    found = [trial for part in PARTS for trial in trials(folder, part)]
    luck = mean(_luck(folder))
    lines = [
        "# What a fixed rate loses against a search",
        "",
        "By `python results/generalise/settings.py`. **Exploratory**, on validation photos: the",
        f"{len(found)} trials of the searches of parts 1 and 2. Lambda, tau, margin and focus of a",
        "trial were drawn at random. Its *loss* is how much rsum it lacks to the setting that the",
        "search of the same objective and replicate chose (the mean of three seeds). The first of",
        "these three is the trial that was chosen. On average it is",
        f"{abs(luck):.1f} {'higher' if luck > 0 else 'lower'} than the other two, so losses are",
        "hardly too large by the luck of a search.",
        "",
    ]
    lines += [*counts(found), ""]
    for first, title in ((1, "after one epoch of `triplet`"), (0, "without a first epoch")):
        lines += [f"## Rates {title}", "", CELLS, "", *table(found, first), ""]
    return "\n".join(lines).rstrip() + "\n"


def hardest(trial: Trial) -> bool:
    """Whether a rule learns from the hardest negative alone."""
    return trial.objective.startswith(("goal", "triplet-sh"))


def counts(found: Sequence[Trial]) -> list[str]:
    """How many trials were lost, and the median loss, by kind of rule, first epoch and rate."""
    by_band = [[trial for trial in found if low <= trial.rate < high] for low, high in BANDS]
    points = [len({(one.data, one.replicate, one.rate) for one in some}) for some in by_band]
    heads = [f"{low:g} to {high:g}" for low, high in BANDS]
    lines = [
        "## By kind of rule",
        "",
        "Each cell: how many trials lost more than 100 (by a plateau, a collapse or a divergence),",
        "and the median loss. All six objectives were tried at the same rates (the columns have",
        f"{', '.join(map(str, points[:-1]))} and {points[-1]} of them), so trials of one kind are",
        "not independent.",
        "",
        "| rules of | first epoch | " + " | ".join(heads) + " |",
        "|---" * (2 + len(BANDS)) + "|",
    ]
    for kind, name in ((True, "the hardest negative"), (False, "several negatives")):
        for first in (0, 1):
            cells = []
            for some in by_band:
                losses = [t.loss for t in some if hardest(t) is kind and t.first_epochs == first]
                lost = sum(loss > LOST for loss in losses)
                cells.append(f"{lost} of {len(losses)}; {median(losses):.1f}")
            lines.append(f"| {name} | {'yes' if first else 'no'} | {' | '.join(cells)} |")
    return lines


def draw(found: Sequence[Trial], path: Path) -> None:
    """Every trial: its rate, and what it lacks, without a first epoch and after one."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    for first, axes in enumerate(panels):
        for rule, colour, name in (
            (True, "C3", "rules of the hardest negative (triplet-sh, three cells of goal)"),
            (False, "C0", "rules of several negatives (nt-xent, focused-deviance)"),
        ):
            some = [t for t in found if hardest(t) is rule and t.first_epochs == first]
            rates, losses = [t.rate for t in some], [t.loss for t in some]
            axes.plot(rates, losses, "o", color=colour, markersize=4, alpha=0.5, label=name)
        axes.set_xscale("log")
        axes.set_xticks([5e-4, 1e-3, 2e-3, 4e-3, 1e-2], ["5e-4", "1e-3", "2e-3", "4e-3", "1e-2"])
        axes.minorticks_off()
        axes.set_xlabel("learning rate")
        axes.grid(alpha=0.3)
        title = "after one epoch of all negatives" if first else "without a first epoch"
        axes.set_title(title, loc="left", fontsize=12)
    panels[0].set_ylabel("validation rsum behind the searched setting")
    panels[0].invert_yaxis()
    shown = panels[0].get_legend_handles_labels()
    figure.legend(*shown, frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    made = page(HERE)
    if parser.parse_args().check:
        if (HERE / "settings.md").read_text() != made:
            raise InputError("settings.md differs from what the kept searches say.")
        print("settings.md: computed again, the same.")
        return
    (HERE / "settings.md").write_text(made)
    draw([trial for part in PARTS for trial in trials(HERE, part)], HERE / "plateau.png")
    print(made, end="")


if __name__ == "__main__":
    main()
