"""What a finished study says: who leads, who is not told apart, and what would decide.

"Not told apart" is an answer: with this much data and this many seeds, nothing speaks for one of
them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation import Difference, Ranks, compare_many, metrics_of
from simgrad.evaluation.comparing import with_spread
from simgrad.runs.outcome import tested_ranks
from simgrad.runs.run import RANKS, Run
from simgrad.studies.study import Study

SURE = 0.05  # Holm's p below which two objectives are told apart
_METRIC = "rsum"
_MOST_SEEDS = 200  # more than that is no advice


@dataclass(frozen=True)
class Rival:
    """An objective beside the leader."""

    label: str
    behind: float  # of the leader, with its interval; below 0 where it is ahead
    low: float
    high: float
    p: float  # Holm's
    image_error: float  # standard error of the gap that more seeds would not lower

    @property
    def told_apart(self) -> bool:
        return self.p < SURE

    @property
    def gap(self) -> str:
        """9.1 [2.0, 15.3]"""
        return f"{self.behind:.1f} [{self.low:.1f}, {self.high:.1f}]"


@dataclass(frozen=True)
class Verdict:
    """Who leads, and how sure that is."""

    leader: str
    score: float  # its mean on the test split
    rivals: tuple[Rival, ...]  # the closest first
    seeds: int  # of the one with fewest
    images: int  # of the test split
    most_seeds: int = 0  # of the one with most, where they differ

    @property
    def tied(self) -> tuple[Rival, ...]:
        return tuple(one for one in self.rivals if not one.told_apart)

    @property
    def sentence(self) -> str:
        """The recommendation."""
        behind = [one for one in self.rivals if one.told_apart]
        rest = "; ".join(f"{one.label} is behind by {one.gap}" for one in behind)
        if not self.tied:
            return f"{self.leader} leads with {_METRIC} {self.score:.1f}; {rest}."
        names = _and([self.leader, *(one.label for one in self.tied)])
        gaps = ", ".join(f"{one.label} {one.gap}" for one in self.tied)
        start = f"{names} are not told apart" if not behind else f"{names} lead, not told apart"
        told = f"{start} ({self.leader} has {_METRIC} {self.score:.1f}; behind it: {gaps})"
        return f"{told}; {rest}." if rest else f"{told}."

    @property
    def sureness(self) -> str:
        """What the intervals mean."""
        seeds = f"{self.seeds} to {self.most_seeds}" if self.most_seeds else str(self.seeds)
        return (
            f"In brackets: 95% intervals of the difference on {self.images:,} test images, over "
            f"{seeds} seeds of each. Told apart: p < {SURE} after Holm's correction."
        )


def verdict(study: Study) -> Verdict:
    """Of what is finished; an error where there is nothing to compare."""
    ranks = {label: runs for label, runs in tested_ranks(study.ended).items() if runs}
    if len(ranks) < 2:
        raise InputError(f"{study.path}: fewer than two objectives have been tested.")
    ranks = with_spread(ranks)
    scores = {label: _mean(runs) for label, runs in ranks.items()}
    leader = max(scores, key=lambda label: scores[label])
    found = compare_many(ranks, leader, _METRIC) if len(ranks) > 1 else {}
    rivals = sorted((_rival(label, one) for label, one in found.items()), key=lambda r: r.behind)
    images = len(ranks[leader][0].i2t)
    fewest, most = (few(map(len, ranks.values())) for few in (min, max))
    return Verdict(
        leader, scores[leader], tuple(rivals), fewest, images, most if most > fewest else 0
    )


def _rival(label: str, one: Difference) -> Rival:
    return Rival(label, -one.difference, -one.high, -one.low, one.corrected, one.image_error)


def _tested(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.test and (run.path / RANKS).is_file()]


def _mean(runs: Sequence[Ranks]) -> float:
    return float(np.mean([metrics_of(run)[_METRIC] for run in runs]))


@dataclass(frozen=True)
class Outlook:
    """What would tell the leader from its closest rival, by an estimate."""

    rival: str
    seeds: int | None  # of each; None: no number of seeds would
    seconds: float  # of one process, for the seeds that are missing, of all objectives


def outlook(study: Study, found: Verdict) -> Outlook | None:
    """None where nothing is open.

    The gap's variance has two parts: that of seeds shrinks with their number, that of the test
    images does not. The gap is taken to stay as it is, which nobody knows.
    """
    if not found.tied:
        return None
    rival, groups = found.tied[0], {k: _tested(runs) for k, runs in study.groups.items()}
    ranks = tested_ranks(study.ended)
    pair = [[metrics_of(run)[_METRIC] for run in ranks[k]] for k in (found.leader, rival.label)]
    if found.seeds < 2:
        return Outlook(rival.label, found.seeds + 2, _seconds(groups, 2))
    one_seed = sum(float(np.var(scores, ddof=1)) for scores in pair)
    needed = seeds_to_decide(rival.behind, rival.image_error, one_seed, found.seeds)
    more = 0 if needed is None else needed - found.seeds
    return Outlook(rival.label, needed, _seconds(groups, more))


def seeds_to_decide(gap: float, image_error: float, one_seed: float, seeds: int) -> int | None:
    """Seeds of each with which a gap would be 1.96 standard errors; None where no number would.

    `image_error` is the part of the gap's standard error that is due to the images, `one_seed` the
    variance that one seed of each gives it. Holm asks more than 1.96 of several comparisons; that
    is left aside.
    """
    room = (gap / 1.96) ** 2 - image_error**2
    if room <= 0 or one_seed / room > _MOST_SEEDS:
        return None
    return max(seeds + 1, math.ceil(one_seed / room))


def _seconds(groups: dict[str, list[Run]], more: int) -> float:
    each = [np.mean([run.info["seconds"] for run in runs]) for runs in groups.values() if runs]
    return float(more * sum(each))


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
