"""How large a comparison fits into a time: length before breadth.

A comparison of trainings that are cut off says who starts quickly, and no more. So no plan trains
for less than half of a full training. Where time is short, objectives are left out from the end of
the list, then settings are left untried; the length stays. The time only selects one of a few
fixed sizes: what is done afterwards depends on the size alone, and never on a clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from simgrad.choosing.probe import Pace

HALF = 0.5  # of a full training: the shortest that is compared
# A training of full length where no pilot could find it in time: VSE++'s 30 epochs, and no fewer
# updates than small data need.
_EPOCHS, _STEPS = 30, 3000
_MOST_EVALUATIONS = 30  # of a run; small data have many short epochs
# (share of the full length, replicates, trials, seeds), the smallest first: each objective is
# searched and tested so many times, each time with so many settings and seeds of its own. Fewer
# than three replicates say little about how much they differ; five show smaller gaps.
_SIZES: tuple[tuple[float, int, int, int], ...] = (
    (HALF, 3, 2, 1), (HALF, 3, 4, 1), (HALF, 5, 4, 1), (0.75, 5, 4, 1), (1, 5, 4, 1), (1, 8, 4, 1),
    (1, 8, 6, 1), (1, 10, 8, 1), (1, 10, 16, 2),
)  # fmt: skip
_SHORT: tuple[tuple[float, int, int, int], ...] = (
    (0.02, 1, 2, 2), (0.05, 1, 2, 2), (0.1, 1, 2, 2), (0.1, 1, 4, 3), (0.2, 1, 4, 3),
    (0.3, 1, 4, 3),
)  # fmt: skip
_USUAL = (HALF, 3, 4, 1)  # objectives are left out before a size smaller than this is taken
_MANY = 8  # trials: from here on the best are repeated, and ranges extended
_FINALISTS, REPEATS = 3, 2  # settings that are repeated, at most; each with so many more seeds


@dataclass(frozen=True)
class Size:
    """How much is done for each objective."""

    epochs: int
    full_epochs: int  # of a training of full length
    trials: int
    seeds: int
    evaluate_every: int | None  # steps; None: every epoch
    finalists: int = 1  # settings that are trained with more seeds before one is chosen
    replicates: int = 1  # searches, each with settings and seeds of its own
    extend: bool = False  # where the best setting lies at an end of its range, look beyond it

    @property
    def share(self) -> float:
        """Of the full length."""
        return self.epochs / self.full_epochs

    @property
    def runs(self) -> int:
        """Trainings of one objective, at most."""
        again = REPEATS * self.finalists if self.finalists > 1 else 0
        beyond = max(2, math.ceil(self.trials / 4)) if self.extend else 0
        return self.replicates * (self.trials + beyond + again + self.seeds)


def every(epochs: int, steps_per_epoch: int) -> int | None:
    """Steps between evaluations; None: an epoch."""
    if epochs <= _MOST_EVALUATIONS:
        return None
    return max(1, epochs * steps_per_epoch // _MOST_EVALUATIONS)


def usual_length(steps_per_epoch: int) -> int:
    """Epochs of a full training, where nobody has looked when validation stops improving."""
    return max(_EPOCHS, round(_STEPS / steps_per_epoch))


def sizes(steps_per_epoch: int, full: int, short: bool = False) -> list[Size]:
    """All sizes for a full training of so many epochs, the smallest first."""
    return [_size(one, steps_per_epoch, full) for one in (_SHORT + _SIZES if short else _SIZES)]


def _size(told: tuple[float, int, int, int], steps_per_epoch: int, full: int) -> Size:
    share, replicates, trials, seeds = told
    epochs = max(1, math.ceil(share * full))
    finalists = min(_FINALISTS, trials // 4) if trials >= _MANY else 1  # of a few, try others
    looks = every(epochs, steps_per_epoch)
    return Size(epochs, full, trials, seeds, looks, finalists, replicates, trials >= _MANY)


def seconds_of(size: Size, paces: Mapping[str, Pace], steps_per_epoch: int, crew: int) -> float:
    """What a size takes with a number of processes, as far as the paces tell."""
    evaluations = min(size.epochs, _MOST_EVALUATIONS)
    each = [pace.seconds(size.epochs * steps_per_epoch, evaluations) for pace in paces.values()]
    start = max(pace.start for pace in paces.values())
    # At the end processes wait for the one that took the last run: half a run each, on average.
    waiting = max(each) / 2 if crew > 1 else 0.0
    return start + waiting + size.runs * sum(each) / crew


@dataclass(frozen=True)
class Fit:
    """What fits into a time."""

    names: tuple[str, ...]  # the objectives; one: no two fit
    size: Size
    seconds: float  # that it takes
    for_two: float  # seconds that the smallest comparison of two objectives takes
    for_all: float  # seconds that all objectives take with the usual size


def largest(
    paces: Mapping[str, Pace],
    steps_per_epoch: int,
    crew: int,
    seconds: float,
    full: int,
    short: bool = False,
) -> Fit:
    """The most that fits: objectives go first, from the end, then settings, never the length.

    `short` allows less than half of the length before an objective goes. Where not even two
    objectives fit, one is left, with as long a training as there is time for, and no less than an
    epoch: then it takes more than the seconds that there are.
    """

    def takes(names: Sequence[str], size: Size) -> float:
        return seconds_of(size, {name: paces[name] for name in names}, steps_per_epoch, crew)

    everything, known = tuple(paces), sizes(steps_per_epoch, full, short)
    usual = next(one for one in known if one == _size(_USUAL, steps_per_epoch, full))
    for_two, for_all = takes(everything[:2], known[0]), takes(everything, usual)

    def fit(names: tuple[str, ...], size: Size) -> Fit:
        return Fit(names, size, takes(names, size), for_two, for_all)

    for count in range(len(everything), 1, -1):
        names = everything[:count]
        fits = [one for one in known if takes(names, one) <= seconds]
        if (known[0] if short or count == 2 else usual) in fits:
            return fit(names, fits[-1])
    alone, whole = {everything[0]: paces[everything[0]]}, _size((1, 1, 0, 1), steps_per_epoch, full)
    for epochs in range(full, 0, -1):
        cut = replace(whole, epochs=epochs, evaluate_every=every(epochs, steps_per_epoch))
        needed = seconds_of(cut, alone, steps_per_epoch, 1)
        if needed <= seconds:
            break
    return Fit(everything[:1], cut, needed, for_two, for_all)
