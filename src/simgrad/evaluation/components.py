"""Where a result's luck comes from: the search (and the split), the seed, the test images.

Runs are nested in replicates: each replicate searched anew, and its runs differ by their seeds. The
variance of a run's metric over all three is taken apart by the usual differences of mean squares; a
part that comes out negative is 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.crossed import shares
from simgrad.evaluation.ranks import Ranks


@dataclass(frozen=True)
class Components:
    """Standard deviations of one run's metric that are due to each cause."""

    search: float  # where replicates have splits of their own, split and search together
    seed: float | None  # None: no replicate has two runs
    images: float


def components(
    draws: Sequence[Sequence[Ranks]], metric: str = "rsum", *, new_images: bool = False
) -> Components:
    """Of the runs of each replicate; `new_images`: each replicate was tested on images of its own.

    Examples:
        >>> embeddings = np.random.default_rng(0).normal(size=(30, 8))
        >>> def run(noise):
        ...     noise = np.random.default_rng(noise).normal(size=(30, 8))
        ...     return simgrad.evaluate(embeddings, embeddings + noise, range(30)).ranks
        >>> found = components([[run(1), run(2)], [run(3), run(4)]])
        >>> found.images > 0
        True
    """
    if len(draws) < 2 or not all(draws):
        raise InputError("two replicates or more, each with a run, say how much searches differ.")
    totals: list[list[float]] = []
    images: list[float] = []
    for draw in draws:
        totals.append([])
        for run in draw:
            found = shares(run, linear=True)
            values = found.values[:, found.names.index(metric)]  # their sum is the metric
            totals[-1].append(float(values.sum()))
            images.append(len(values) * float(values.var(ddof=1)))
    several = [each for each in totals if len(each) > 1]
    seed = float(np.mean([np.var(each, ddof=1) for each in several])) if several else None
    between = float(np.var([np.mean(each) for each in totals], ddof=1))
    less = (seed or 0.0) * float(np.mean([1 / len(each) for each in totals]))
    less += float(np.mean(images)) if new_images else 0.0
    return Components(
        math.sqrt(max(0.0, between - less)),
        None if seed is None else math.sqrt(seed),
        math.sqrt(float(np.mean(images))),
    )
