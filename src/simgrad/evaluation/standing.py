"""Who leads, by how much, how sure that is, what is equivalent and what failed.

Every table, answer and page takes it from here, and its words too. One word is said of each
system: the leader is ahead where a rival is behind, and of each rival it is said that it is

- behind: told apart from the leader, at 5 %.
- equivalent: the difference is below a margin that matters, at 5 % (two one-sided tests, corrected
  for all pairs as well: the 90 % intervals of all pairs together lie within the margin).
- open: neither. Then `decision` says what would decide.
- failed: it has no run that trained, so there is nothing to compare.

The leader is chosen from the data. Whoever compares the best of many with the others finds gaps
where there are none, so the test is one for all pairs, with unequal variances (Dunnett's T3): if
all systems are equal, somebody is told apart in at most 5 % of studies.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation import wording
from simgrad.evaluation.comparison import check_same_queries
from simgrad.evaluation.crossed import (
    Crossed,
    Sureness,
    by_chance,
    paired_sureness,
    runs_of,
    sureness,
)
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.differences import Difference
from simgrad.evaluation.distributions import share_bound
from simgrad.evaluation.metrics import metrics_of
from simgrad.evaluation.ranks import Ranks

SURE = 0.05  # p below which systems are told apart, or called equivalent
MARGIN = 6.0  # of rsum: one point of mean recall

Draw = Ranks | Sequence[Ranks]  # a run; or a replicate: the test runs of one search
Word = Literal["ahead", "behind", "equivalent", "open", "failed"]
Outcome = Literal["trained", "collapsed", "diverged", "plateau"]


@dataclass(frozen=True)
class Score:
    """What one system came to over all its runs; failed ones count with what they scored."""

    label: str
    mean: float
    runs: tuple[float, ...]  # of each run
    draws: int  # runs, or replicates
    outcomes: tuple[Outcome, ...]  # of each run

    @property
    def worst(self) -> float:
        return min(self.runs)

    @property
    def failures(self) -> int:
        return sum(one != "trained" for one in self.outcomes)

    @property
    def failed(self) -> bool:
        """Whether no run trained."""
        return self.failures == len(self.runs)

    @property
    def of_trained(self) -> float | None:
        """The mean over the runs that trained."""
        kept = [x for x, one in zip(self.runs, self.outcomes, strict=True) if one == "trained"]
        return float(np.mean(kept)) if kept else None

    @property
    def failure_text(self) -> str:
        """0 of 3 seeds failed; a share of up to 63 % is compatible"""
        ended = sorted({one for one in self.outcomes if one != "trained"})
        how = f" ({', '.join(ended)})" if ended else ""
        bound = 100 * share_bound(self.failures, len(self.runs))
        plural = "seed" if len(self.runs) == 1 else "seeds"
        told = f"{self.failures} of {len(self.runs)} {plural} failed{how}"
        return told if self.failed else f"{told}; a share of up to {bound:.0f} % is compatible"


@dataclass(frozen=True)
class Rival:
    """A system beside the leader."""

    label: str
    behind: float  # the leader minus this one
    low: float  # of an interval that holds for all rivals together
    high: float
    p: float  # of no difference, corrected for the choice of the leader
    p_equivalent: float  # of a difference of the margin or more, corrected for all pairs
    beaten: float  # P(one run of the leader beats one run of this)
    word: Word
    error: float = 0.0  # standard error of `behind`
    run_variance: float = 0.0  # of it, by one draw of each
    image_error: float = 0.0  # of it, which more draws do not lower

    @property
    def gap(self) -> str:
        """9.1 [2.0, 15.3]"""
        return f"{self.behind:.1f} [{self.low:.1f}, {self.high:.1f}]"


@dataclass(frozen=True)
class Standing:
    """Systems that were compared on the same queries.

    Examples:
        >>> ranks = lambda: simgrad.evaluate_similarities(torch.rand(20, 20)).ranks
        >>> found = simgrad.evaluation.stand({name: [ranks(), ranks()] for name in "ab"})
        >>> [rival.word for rival in found.rivals]
        ['open']
    """

    metric: str
    margin: float
    leader: str
    scores: Mapping[str, Score]
    rivals: tuple[Rival, ...]  # the closest first; not those that failed
    alone: tuple[str, ...]  # one run alone, where others have several: not compared
    images: int  # of the test split; 0: each replicate has its own
    replicates: bool  # draws are whole searches
    short: bool = False  # too short a training to say who is ahead
    units: str = "test images"  # what is drawn beside runs
    looked: tuple[str, ...] = ()  # with how many draws it was looked at before it got more

    def __str__(self) -> str:
        """Who leads, what failed and what the intervals mean, a line each."""
        lines = [wording.lead(self), *wording.failures(self), wording.basis(self)]
        return "\n".join(filter(None, lines))

    __repr__ = __str__  # what a prompt shows

    @property
    def is_one_point(self) -> bool:
        """Whether the margin is one point of mean recall."""
        return self.metric == "rsum" and self.margin == MARGIN

    def worded(self, word: Word) -> tuple[Rival, ...]:
        """The rivals of which a word is said."""
        return tuple(one for one in self.rivals if one.word == word)

    @property
    def failed(self) -> tuple[str, ...]:
        """Systems none of whose runs trained."""
        return tuple(label for label, one in self.scores.items() if one.failed)

    @property
    def compared(self) -> int:
        """How many systems were compared with each other."""
        return 1 + len(self.rivals)

    @property
    def draws(self) -> tuple[int, int]:
        """The fewest and the most of a system that was compared."""
        counts = [self.scores[x].draws for x in (self.leader, *(r.label for r in self.rivals))]
        return min(counts), max(counts)


def stand(
    systems: Mapping[str, Sequence[Draw]],
    outcomes: Mapping[str, Sequence[Outcome]] | None = None,
    *,
    metric: str = "rsum",
    margin: float = MARGIN,
    new_images: bool = False,
    short: bool = False,
    looked: Sequence[str] = (),
) -> Standing:
    """Compare systems by their test ranks. `outcomes`: how each run ended, in the same order.

    `new_images`: each draw has test images of its own, and draws of one place are pairs. `short`:
    the training was too short to say who is ahead; all that is not equivalent is then open.
    `looked`: earlier looks at fewer draws, which the words then tell of.

    Examples:
        >>> ranks = lambda: simgrad.evaluate_similarities(torch.rand(20, 20)).ranks
        >>> found = simgrad.evaluation.stand({name: [ranks() for _ in range(3)] for name in "abc"})
        >>> found.compared
        3
    """
    there = {label: list(draws) for label, draws in systems.items() if draws}
    scores = {
        label: _score(label, draws, (outcomes or {}).get(label), metric)
        for label, draws in there.items()
    }
    usable = {label: draws for label, draws in there.items() if not scores[label].failed}
    if not usable:
        raise InputError("nothing can be compared: no run trained.")
    several = {label: draws for label, draws in usable.items() if len(draws) > 1} or usable
    leader = max(several, key=lambda label: scores[label].mean)
    every = _Differences(several, metric, new_images)
    return Standing(
        metric,
        margin,
        leader,
        scores,
        _rivals(every, several, leader, scores, margin, short),
        tuple(label for label in usable if label not in several),
        0 if new_images else len(runs_of(several[leader][0])[0].i2t),
        any(not isinstance(draw, Ranks) for draw in several[leader]),
        short,
        looked=tuple(looked),
    )


def against(
    systems: Mapping[str, Sequence[Draw]],
    baseline: str,
    *,
    metric: str = "rsum",
    new_images: bool = False,
) -> dict[str, Difference]:
    """Each system minus one of them; intervals and p hold for all differences together.

    A baseline with the highest mean may have been chosen for it. Then they hold for all pairs, as
    in `stand`: of two systems a page says one interval and one p.

    Examples:
        >>> ranks = lambda: simgrad.evaluate_similarities(torch.rand(20, 20)).ranks
        >>> found = simgrad.evaluation.against({n: [ranks(), ranks()] for n in "abc"}, "a")
        >>> list(found)
        ['b', 'c']
    """
    if baseline not in systems or len(systems) < 2:
        raise InputError(f"there is nothing to compare with '{baseline}'.")
    if len({len(draws) == 1 for draws in systems.values()}) > 1:
        raise InputError("to tell seeds from systems, each system needs runs of two seeds or more.")
    every = _Differences({name: list(draws) for name, draws in systems.items()}, metric, new_images)
    others = [name for name in systems if name != baseline]
    means = {name: every.mean(name) for name in systems}
    leads = means[baseline] >= max(means.values())
    count = math.comb(len(systems), 2) if leads else len(others)
    found = {}
    for name in others:
        gap, sure, _ = every.between(baseline, name)
        reach, p = _reach_and_p(gap, sure, count, every.units(name))
        found[name] = Difference(
            metric, means[baseline], means[name], gap, gap - reach, gap + reach, p,
            float(sure.image_error[0]),
        )  # fmt: skip
    return found


def stand_crossed(systems: Mapping[str, Crossed], *, margin: float, units: str) -> Standing:
    """Compare systems by the share of each unit (query, group of them, task) in one metric.

    `units`: what the units are, in the plural.
    """
    scores = {
        label: _scored(label, [[float(total)] for total in one.totals[:, 0]], None)
        for label, one in systems.items()
    }
    several = {label: one for label, one in systems.items() if len(one) > 1} or dict(systems)
    leader = max(several, key=lambda label: scores[label].mean)
    every = _Differences({}, "", False)
    every.crossed.update(several)
    first = several[leader]
    return Standing(
        first.names[0],
        margin,
        leader,
        scores,
        _rivals(every, several, leader, scores, margin, False),
        tuple(label for label in systems if label not in several),
        len(first.fold),
        replicates=False,
        units=units,
    )


def _rivals(
    every: "_Differences",
    labels: Collection[str],
    leader: str,
    scores: Mapping[str, Score],
    margin: float,
    short: bool,
) -> tuple[Rival, ...]:
    """The others beside the leader, the closest first."""
    rivals = [
        _rival(every, leader, label, scores, len(labels), margin, short)
        for label in labels
        if label != leader
    ]
    return tuple(sorted(rivals, key=lambda one: one.behind))


def _score(
    label: str, draws: Sequence[Draw], outcomes: Sequence[Outcome] | None, metric: str
) -> Score:
    scored = [[metrics_of(run)[metric] for run in runs_of(draw)] for draw in draws]
    return _scored(label, scored, outcomes)


def _scored(
    label: str, scored: Sequence[Sequence[float]], outcomes: Sequence[Outcome] | None
) -> Score:
    """From the scores of the runs of each draw."""
    runs = tuple(score for several in scored for score in several)
    mean = float(np.mean([np.mean(several) for several in scored]))
    ended: Sequence[Outcome] = outcomes or ["trained" for _ in runs]
    return Score(label, mean, runs, len(scored), tuple(ended))


class _Differences:
    """The systems in one metric, ready to be subtracted from each other."""

    def __init__(self, systems: Mapping[str, list[Draw]], metric: str, new_images: bool) -> None:
        self.new_images = new_images
        self.totals: dict[str, Floats] = {}
        self.crossed: dict[str, Crossed] = {}
        if not new_images:
            check_same_queries([r for draws in systems.values() for d in draws for r in runs_of(d)])
        elif len({len(draws) for draws in systems.values()}) > 1:
            raise InputError("with new images for each replicate, all need the same replicates.")
        for label, draws in systems.items():
            if new_images:
                means = [np.mean([metrics_of(r)[metric] for r in runs_of(d)]) for d in draws]
                self.totals[label] = np.array(means)[:, None]
                continue
            whole = Crossed.of(draws)
            place = whole.names.index(metric) if metric in whole.names else -1
            if place < 0:
                raise InputError(f"'{metric}' is no mean over queries: it cannot be compared.")
            part: Floats = whole.values[:, :, place : place + 1]
            self.crossed[label] = Crossed((metric,), part, whole.fold)

    def units(self, label: str) -> int:
        """Images; or replicates, where each has images of its own."""
        return len(self.totals[label]) if self.new_images else len(self.crossed[label].fold)

    def mean(self, label: str) -> float:
        """Of a system, over its draws."""
        if self.new_images:
            return float(self.totals[label].mean())
        return float(self.crossed[label].mean[0])

    def between(self, first: str, second: str) -> tuple[float, Sureness, float]:
        """The second minus the first, how sure that is, and the variance of one draw of each."""
        if self.new_images:
            a, b = self.totals[first], self.totals[second]
            sure = paired_sureness(a, b)
            return float((b - a).mean()), sure, float(sure.error[0] ** 2 * len(a))
        one, other = self.crossed[first], self.crossed[second]
        variance = sum(float(x.run_part[0]) * len(x) for x in (one, other))
        return float(other.mean[0] - one.mean[0]), sureness(one, other), variance


def _rival(
    every: _Differences,
    leader: str,
    label: str,
    scores: Mapping[str, Score],
    count: int,
    margin: float,
    short: bool,
) -> Rival:
    gap, sure, variance = every.between(label, leader)
    error, pairs = float(sure.error[0]), math.comb(count, 2)
    reach, p = _reach_and_p(gap, sure, pairs, every.units(label))
    if error > 0:
        within = (margin - abs(gap)) / error
        equal = sure.tail(within, comparisons=pairs) / 2 if within > 0 else 1.0
    else:  # none differs from the others: so few may do so by chance
        equal = max(float(abs(gap) >= margin), by_chance(every.units(label)))
    word: Word = "equivalent" if equal < SURE else "behind" if p < SURE else "open"
    if short and word == "behind":
        word = "open"
    beaten = _beats(scores[leader].runs, scores[label].runs)
    image = float(sure.image_error[0])
    return Rival(
        label, gap, gap - reach, gap + reach, p, equal, beaten, word, error, variance, image
    )


def _reach_and_p(gap: float, sure: Sureness, comparisons: int, units: int) -> tuple[float, float]:
    """Half of the interval, and p of no difference, for so many comparisons together."""
    error = float(sure.error[0])
    if error > 0:
        reach = sure.quantile(SURE, comparisons=comparisons) * error
        return reach, max(sure.tail(gap / error, comparisons=comparisons), sure.least_p)
    # None differs from the others: so few may do so by chance.
    return 0.0, max(float(gap == 0), by_chance(units), sure.least_p)


def _beats(first: Sequence[float], second: Sequence[float]) -> float:
    """P(a run of the first scores more than one of the second); equal scores count half."""
    gaps = np.subtract.outer(np.array(first), np.array(second))
    return float((gaps > 0).mean() + (gaps == 0).mean() / 2)
