"""What is kept of a study, and what its ranks say of a claim, in the words of a standing."""

import csv
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks, cross_ranks, stand
from simgrad.evaluation.crossed import Crossed
from simgrad.evaluation.standing import MARGIN, Outcome, Standing, stand_crossed
from simgrad.runs.outcome import outcome_of
from simgrad.runs.run import RANKS
from simgrad.studies.study import Study

HERE = Path(__file__).resolve().parent
TUNED = HERE.parent / "flickr8k" / "study"
# What is too small to matter, as MARGIN of rsum is: a point of R@1, of pairs, of mAP@5 in %.
POINT = 1.0
MARGINS = {"rsum": MARGIN, "i2t_map5_hits": POINT / 100}


@dataclass
class Table:
    """What is kept of one study on one data set, by row."""

    ranks: dict[str, list[Ranks]] = field(default_factory=dict)
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    counts: list[dict[str, str]] = field(default_factory=list)

    def of(self, labels: Sequence[str]) -> "Table":
        """Some rows of it."""
        return Table(
            {label: self.ranks[label] for label in labels},
            {label: self.outcomes[label] for label in labels},
        )


def keep(study: Study, folder: Path) -> None:
    """Copy what the verdicts rest on; a study that has not ended is refused."""
    lines = []
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    for row in study.plan.rows:
        for run in study.runs_of(row):
            outcome = "trained" if row.ensemble and run.finished else outcome_of(run)
            if outcome is None:
                raise InputError(
                    f"{study.path}: has not ended ({run.name}); run it again to resume."
                )
            told = {"run": run.name, "row": row.label, "outcome": outcome}
            seconds = None if row.ensemble else run.seconds_per_batch
            lines.append(told | {"seconds": "" if seconds is None else f"{seconds:.6f}"})
            if outcome != "diverged":
                shutil.copy(run.path / RANKS, folder / "ranks" / f"{run.name}.parquet")
    shutil.copy(study.path / "study.yaml", folder / "study.yaml")
    with (folder / "tests.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def kept(folder: Path) -> Table:
    """The rows of a kept study; empty where nothing is kept. A diverged run found nothing."""
    found = Table()
    if not (folder / "tests.csv").is_file():
        return found
    lines = lines_of(folder / "tests.csv")
    known = {
        line["run"]: Ranks.load(folder / "ranks" / f"{line['run']}.parquet")
        for line in lines
        if line["outcome"] != "diverged"
    }
    for line in lines:
        ranks = known.get(line["run"]) or next(iter(known.values())).worst()
        found.ranks.setdefault(line["row"], []).append(ranks)
        outcome: Any = line["outcome"]
        found.outcomes.setdefault(line["row"], []).append(outcome)
        if line["seconds"]:
            found.seconds.setdefault(line["row"], []).append(float(line["seconds"]))
    if (folder / "counts.csv").is_file():
        found.counts = lines_of(folder / "counts.csv")
    return found


@cache
def tuned() -> Table:
    """The runs of thirteen objectives, each searched alike, on Flickr8k's official test photos."""
    found = Table()
    for line in lines_of(TUNED / "runs.csv"):
        ranks = Ranks.load(TUNED / "ranks" / f"{line['run']}.parquet")
        found.ranks.setdefault(line["row"], []).append(ranks)
        found.outcomes.setdefault(line["row"], []).append("trained")
    return found


def standing_of(table: Table, metric: str) -> Standing:
    """Of all rows of a table, in a metric or in the share of pairs by cross-retrieval rank."""
    if not metric.startswith("pairs"):
        margin = MARGINS.get(metric, POINT)
        return stand(table.ranks, table.outcomes, metric=metric, margin=margin)
    several = {
        label: Crossed((metric,), np.stack([_pairs(one, metric) for one in runs]), runs[0].fold)
        for label, runs in table.ranks.items()
    }
    return stand_crossed(several, margin=POINT, units="test images")


def _pairs(ranks: Ranks, metric: str) -> np.ndarray:
    """(images, 1) what an image's pairs add to the % at rank 1, or not beyond 200."""
    values = cross_ranks(ranks)
    right = values == 1 if metric == "pairs at 1" else values <= 200
    each = np.bincount(ranks.image_of_caption, right, len(ranks.i2t))
    return np.asarray(100 * each / len(values))[:, None]


def verdict(kind: str, first: str, others: Sequence[str], table: Table, metric: str) -> str:
    """What the ranks say of `first` beside each of the others, in the words of a standing."""
    if kind == "best":
        return _best(first, standing_of(table.of([first, *others]), metric))
    told = []
    for other in others:
        standing = standing_of(table.of([first, other]), metric)
        beside = f" ({other})" if len(others) > 1 else ""
        if max(len(table.ranks[first]), len(table.ranks[other])) == 1:
            beside += " (one of each: over photos alone)"
        if standing.failed:
            told.append(f"**no fair comparison**: {', '.join(standing.failed)} failed{beside}")
            continue
        (rival,) = standing.rivals
        leads = standing.leader == first
        ends = (rival.low, rival.high) if leads else (-rival.high, -rival.low)
        middle, low, high = (shown(x, metric) for x in (rival.behind * (1 if leads else -1), *ends))
        gap = f"{middle if middle.startswith('-') else '+' + middle} [{low}, {high}]"
        words = {"equivalent": "does not hold: equivalent", "open": "open"}
        words["behind"] = "holds" if leads == (kind == "ahead") else "the contrary holds"
        if kind == "alike":
            words |= {"equivalent": "holds: equivalent", "behind": "does not hold"}
        told.append(f"**{words[rival.word]}**, {gap}{beside}")
    return "; ".join(told)


def shown(number: float, metric: str) -> str:
    return f"{number:.3f}" if metric == "i2t_map5_hits" else f"{number:.1f}"


def _best(first: str, standing: Standing) -> str:
    """Whether one row is ahead of all others."""
    if first in standing.failed:
        return f"**no fair comparison**: {first} failed"
    if first == standing.leader:
        behind = len(standing.worded("behind"))
        word = "holds" if behind == len(standing.rivals) else "not contradicted: the highest mean"
        return f"**{word}**, ahead of {behind} of {len(standing.rivals)}"
    (own,) = (one for one in standing.rivals if one.label == first)
    words = {"behind": "does not hold: behind", "open": "open: lower than"}
    word = words.get(own.word, "equivalent to the highest,")
    return f"**{word}** {standing.leader}, by {own.gap}"
