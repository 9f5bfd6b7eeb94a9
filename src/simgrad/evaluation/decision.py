"""What would decide an open comparison: how many seeds, searches or photos."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simgrad.evaluation.crossed import by_chance, sureness_from
from simgrad.evaluation.standing import SURE, Standing, Word

POWER = 0.8
_MOST_DRAWS, _MOST_IMAGES = 200, 20  # draws of each; times as many images: more is no advice
_SOME_DRAWS = 20  # beside more images


@dataclass(frozen=True)
class Decision:
    """What would end an open comparison with a chance of 80 %, if the gap stays what it is."""

    rival: str
    draws: int | None  # of each system; None: as many as there are, or no number
    images: int | None  # of the test split; None: as many as there are, or no number
    equivalent: bool = False  # what they would show: that both are, or that the leader is ahead


def decision(standing: Standing) -> Decision | None:
    """For the closest rival that is open; None: none is."""
    rivals = standing.worded("open")
    if not rivals or standing.short:
        return None
    rival, (fewest, _) = rivals[0], standing.draws

    def shown(draws: int, more_images: float = 1.0) -> Word | None:
        runs = rival.run_variance / draws
        images = rival.image_error**2 / more_images
        if fewest == 1 and not runs:  # single runs: nothing is known of seeds
            return None
        freedom = 2 * (draws - 1) if standing.images else draws - 1  # with equal variances
        apart = detectable(runs, freedom, images, standing.compared)
        alike = detectable(runs, freedom, images, standing.compared, 2 * SURE)
        units = math.floor(standing.images * more_images) if standing.images else draws
        if not rival.error and by_chance(units) >= SURE:
            return None
        if rival.behind and abs(rival.behind) >= apart:
            return "ahead"
        return "equivalent" if standing.margin - abs(rival.behind) >= alike else None

    draws = _first(lambda draws: shown(draws) is not None, max(2, fewest + 1), _MOST_DRAWS)
    if draws is not None or not standing.images:
        alike = draws is not None and shown(draws) == "equivalent"
        return Decision(rival.label, draws, None, alike)
    for draws in (None, max(_SOME_DRAWS, fewest)):  # rather photos alone than photos and seeds
        count = draws or max(2, fewest)
        times = _first(lambda n, count=count: shown(count, n) is not None, 2, _MOST_IMAGES)  # type: ignore[misc]
        if times is not None:
            alike = shown(count, times) == "equivalent"
            return Decision(rival.label, draws, times * standing.images, alike)
    return Decision(rival.label, None, None)


def detectable(
    runs: float, freedom: float, images: float, systems: int, tail: float = SURE
) -> float:
    """The gap that is found in four of five studies of so many systems.

    `runs`, `images`: the parts of its variance, the first estimated with degrees of freedom.
    """
    sure = sureness_from(np.array([runs]), np.array([float(freedom)]), np.array([images]))
    told = sure.quantile(tail, comparisons=math.comb(systems, 2))
    return (told + sure.quantile(2 * (1 - POWER))) * float(sure.error[0])


def _first(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest number of a range for which something holds, if more never harms."""
    if low > high or not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
