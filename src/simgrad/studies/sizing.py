"""How large a comparison fits into a time: length of training, trials and seeds, for all alike.

The sizes stand in one list, from the smallest that says anything to the one that settles it; the
largest that fits is taken. A time only picks from the list: what is done afterwards depends on the
size alone, and never on a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from simgrad.studies.probe import Pace

# A training of full length: VSE++'s 30 epochs, and no fewer updates than small data need.
_EPOCHS, _STEPS = 30, 3000
_MOST_EVALUATIONS = 30  # of a run; small data have many short epochs
# (share of the full length, trials, seeds). Two seeds are the fewest that give an interval.
_SIZES: tuple[tuple[float, int, int], ...] = (
    (0.02, 2, 2), (0.05, 2, 2), (0.1, 2, 2), (0.1, 3, 3), (0.2, 3, 3), (0.2, 4, 3), (0.3, 4, 3),
    (0.3, 6, 3), (0.5, 6, 3), (0.5, 8, 4), (0.5, 8, 5), (0.5, 12, 5), (0.75, 12, 5), (1, 16, 5),
    (1, 16, 8), (1, 24, 10),
)  # fmt: skip
_FINALISTS, REPEATS = 3, 2  # settings that are repeated, at most; each with so many more seeds
# Below this size rather fewer objectives than shorter runs.
_MODEST = _SIZES.index((0.1, 3, 3))


@dataclass(frozen=True)
class Size:
    """How much is done for each objective."""

    epochs: int
    full_epochs: int  # of a training of full length
    trials: int
    seeds: int
    evaluate_every: int | None  # steps; None: every epoch
    finalists: int = 1  # settings that are trained with more seeds before one is chosen

    @property
    def share(self) -> float:
        """Of the full length."""
        return self.epochs / self.full_epochs


def every(epochs: int, steps_per_epoch: int) -> int | None:
    """Steps between evaluations; None: an epoch."""
    if epochs <= _MOST_EVALUATIONS:
        return None
    return max(1, epochs * steps_per_epoch // _MOST_EVALUATIONS)


def full_length(steps_per_epoch: int) -> int:
    """Epochs of a training of full length."""
    return max(_EPOCHS, round(_STEPS / steps_per_epoch))


def sizes(steps_per_epoch: int, full: int | None = None) -> list[Size]:
    """All sizes, the smallest first; `full`: epochs of a training of full length."""
    full = full or full_length(steps_per_epoch)
    found = []
    for share, trials, seeds in _SIZES:
        epochs = max(1, round(share * full))
        finalists = max(1, min(_FINALISTS, trials // 4))  # of a few, rather try others
        size = Size(epochs, full, trials, seeds, every(epochs, steps_per_epoch), finalists)
        found.append(size)
    return found


def seconds_of(size: Size, paces: Mapping[str, Pace], steps_per_epoch: int, crew: int) -> float:
    """What a size takes with a number of processes, as far as the probe can tell."""
    evaluations = min(size.epochs, _MOST_EVALUATIONS)
    each = [pace.seconds(size.epochs * steps_per_epoch, evaluations) for pace in paces.values()]
    start = max(pace.start for pace in paces.values())
    # At the end processes wait for the one that took the last run: half a run each, on average.
    waiting = max(each) / 2 if crew > 1 else 0.0
    further = REPEATS * size.finalists if size.finalists > 1 else 0
    return start + waiting + (size.trials + further + size.seeds) * sum(each) / crew


def largest(
    paces: Mapping[str, Pace],
    steps_per_epoch: int,
    crew: int,
    seconds: float,
    keep: int,
    full: int | None = None,
) -> tuple[list[str], Size]:
    """Which objectives and which size fit; the smallest size where none does.

    The first `keep` objectives are compared in any case. The others are left out, the last first,
    where all together would have to be trained for too short a time.
    """
    known, names = sizes(steps_per_epoch, full), list(paces)
    while True:
        there = {name: paces[name] for name in names}
        fits = [
            place
            for place, size in enumerate(known)
            if seconds_of(size, there, steps_per_epoch, crew) <= seconds
        ]
        place = max(fits, default=0)
        if place >= _MODEST or len(names) <= keep:
            return names, known[place]
        names.pop()
