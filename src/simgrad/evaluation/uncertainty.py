"""How sure the numbers of one system are: an interval for every metric.

- Means over queries: seeds and images are drawn, in closed form (`crossed.py`). Of one run images
  alone are.
- Medians have no closed form: a bootstrap over images. Of several seeds, the variance that the
  bootstrap gives is added to that of the seeds.

Intervals are cut off at the bounds of the metric.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.crossed import (
    Crossed,
    images_of_queries,
    runs_of,
    sureness,
    sureness_from,
)
from simgrad.evaluation.declared import DIRECTIONS, Floats, Metric, always, metric_of, per_query
from simgrad.evaluation.metrics import Metrics, metrics_of
from simgrad.evaluation.ranks import Integers, Ranks, split_folds

LEVEL = 0.95
_RESAMPLES = 2000
_AT_A_TIME = 500  # resamples: bounds the memory


@dataclass(frozen=True)
class Estimate:
    """One metric of one system: its mean over runs, and an interval where one can be had.

    Examples:
        >>> simgrad.evaluation.Estimate(mean=50.0, values=(49.0, 51.0)).deviation
        1.4142135623730951
    """

    mean: float
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()  # one for each run

    @property
    def deviation(self) -> float | None:
        """Standard deviation over runs (n - 1); None for one run."""
        return stdev(self.values) if len(self.values) > 1 else None


def intervals(
    ranks: Ranks | Metrics, *, level: float = LEVEL, resamples: int = _RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """An interval for every metric of one run. `resamples` and `seed` are those of medians.

    Examples:
        >>> metrics = simgrad.evaluate_similarities(torch.rand(20, 20))
        >>> low, high = simgrad.evaluation.intervals(metrics)["rsum"]
        >>> low < metrics.rsum < high
        True
    """
    ranks = ranks.ranks if isinstance(ranks, Metrics) else ranks
    check_level(level)
    result = _means([[ranks]], level)
    tails = [(1 - level) / 2, (1 + level) / 2]
    for name, medians in draw_medians(ranks, resamples, seed).items():
        low, high = np.quantile(medians, tails, method="nearest")
        result[name] = (float(low), float(high))
    return {name: _within(name, *bounds) for name, bounds in result.items()}


def estimates(
    tables: Sequence[Mapping[str, float]] | None = None,
    ranks: Sequence[Ranks] | Sequence[Sequence[Ranks]] = (),
    *,
    level: float = LEVEL,
) -> dict[str, Estimate]:
    """Every metric of one system, from the metrics of its runs and the ranks that were kept.

    Without tables the metrics are those of the ranks. Without ranks nothing is known of the images,
    and an interval says how much seeds differ, where there are several. Of replicates, a table has
    the means over the runs of one, and its ranks are a list.

    Examples:
        >>> runs = [simgrad.evaluate_similarities(torch.rand(20, 20)).ranks for _ in range(3)]
        >>> one = simgrad.evaluation.estimates(ranks=runs)["rsum"]
        >>> one.low < one.mean < one.high
        True
    """
    check_level(level)
    draws = [runs_of(draw) for draw in ranks]
    if tables is None:
        tables = [metrics_of(run).to_dict() for runs in draws for run in runs]
    if not tables:
        return {}
    names = list(dict.fromkeys(name for table in tables for name in table))
    sizes = {len(run.i2t) for runs in draws for run in runs}
    bounds: dict[str, tuple[float, float]] = {}
    if len(draws) == len(tables) and len(sizes) == 1 and len(draws) == len(draws[0]) == 1:
        bounds = intervals(draws[0][0], level=level)
    elif len(draws) == len(tables) and len(sizes) == 1:
        bounds = _means(draws, level)
        every = [run for runs in draws for run in runs]
        medians = [draw_medians(run, _RESAMPLES // 4, 0, names) for run in every]
        for name in medians[0]:  # the same images are drawn for all seeds
            drawn = np.mean([run[name] for run in medians], axis=0)
            each = [float(table[name]) for table in tables if name in table]
            bounds[name] = _of_seeds(each, level, float(drawn.var(ddof=1)))
    found = {}
    for name in names:
        values = tuple(float(table[name]) for table in tables if name in table)
        mean = fmean(values)
        if name not in bounds and len(values) > 1:
            bounds[name] = _of_seeds(values, level)
        if name not in bounds or math.isnan(mean):
            found[name] = Estimate(mean, values=values)
        else:
            found[name] = Estimate(mean, *_within(name, *bounds[name]), values)
    return found


def _means(draws: Sequence[Sequence[Ranks]], level: float) -> dict[str, tuple[float, float]]:
    """The intervals of all metrics that are means over queries; none of too few images."""
    fold = draws[0][0].fold
    if min(np.bincount(fold)[np.unique(fold)]) < 2:
        return {}
    runs = Crossed.of(draws)
    reach = sureness(runs).reach(level)
    rows = zip(runs.names, runs.mean - reach, runs.mean + reach, strict=True)
    return {name: (float(low), float(high)) for name, low, high in rows}


def _of_seeds(values: Sequence[float], level: float, images: float = 0.0) -> tuple[float, float]:
    """Around a mean over seeds; `images`: a variance beside theirs."""
    mean, seeds = fmean(values), stdev(values) ** 2 / len(values) if len(values) > 1 else 0.0
    if math.isnan(seeds + images):
        return mean, mean
    parts = np.array([seeds]), np.array([max(1.0, len(values) - 1)]), np.array([images])
    reach = float(sureness_from(*parts).reach(level)[0])
    return mean - reach, mean + reach


def _within(name: str, low: float, high: float) -> tuple[float, float]:
    """An interval, cut off where the metric ends."""
    least, most = metric_of(name).bounds
    return max(least, low), min(most, high)


def check_level(level: float) -> None:
    """Refuse a level that is not between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"a confidence level lies between 0 and 1, not at {level}.")


def draw_images(ranks: Ranks, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each image is drawn, (resamples, images), some at a time; folds keep their size."""
    random = np.random.default_rng([seed, 0])
    images = [np.flatnonzero(ranks.fold == f) for f in np.unique(ranks.fold)]
    for start in range(0, resamples, _AT_A_TIME):
        size = min(_AT_A_TIME, resamples - start)
        weights = np.zeros((size, len(ranks.i2t)))
        for rows in images:
            draw = random.integers(0, len(rows), (size, len(rows)))
            draw += np.arange(size)[:, None] * len(rows)
            counted = np.bincount(draw.ravel(), minlength=size * len(rows))
            weights[:, rows] = counted.reshape(size, len(rows))
        yield weights


def draw_medians(
    ranks: Ranks, resamples: int, seed: int, among: Container[str] | None = None
) -> dict[str, Floats]:
    """(resamples,) of every metric (`among` these) that is a median, averaged over folds."""
    named = {
        f"{way}_{one.name}": (way, one)
        for one in always()
        for way in DIRECTIONS
        if one.combine == "median"
    }
    medians = [
        (name, folds)
        for name, median in named.items()
        if (among is None or name in among) and (folds := _folds_of_medians(ranks, *median))
    ]
    if not medians:
        return {}
    drawn: dict[str, list[Floats]] = {name: [] for name, _ in medians}
    for weights in draw_images(ranks, resamples, seed):
        for name, folds in medians:
            found = [fold.of(weights[:, rows]) for rows, fold in folds]
            drawn[name].append(np.mean(found, axis=0))
    return {name: np.concatenate(parts) for name, parts in drawn.items()}


def _folds_of_medians(ranks: Ranks, way: str, one: Metric) -> Sequence[tuple[Integers, "_Medians"]]:
    made = []
    for number, fold in zip(np.unique(ranks.fold), split_folds(ranks), strict=True):
        rows = np.flatnonzero(ranks.fold == number)
        each = per_query(fold.positions[way], [one], fold, way).get(one.name)
        if each is None:  # it says nothing of this direction
            return []
        made.append((rows, _Medians(each, images_of_queries(fold)[way], len(rows))))
    return made


class _Medians:
    """Medians of queries whose images are drawn.

    The median of a draw is a value near that of all: only those few are counted, for all draws by
    one matrix product. Were a draw to leave that window, all values are looked at.
    """

    def __init__(self, values: Floats, image: Integers, images: int) -> None:
        self.values, self.image, self.images = values, image, images
        self.sizes = np.bincount(image, minlength=images)
        self.levels, self.place = np.unique(values, return_inverse=True)
        below = np.cumsum(np.bincount(self.place)) / len(values)
        middle = np.bincount(image[values <= np.median(values)], minlength=images)
        spread = np.sqrt(np.sum((middle - middle.sum() / len(values) * self.sizes) ** 2))
        reach = 6 * spread / len(values) + 1e-9
        self.first = int(np.searchsorted(below, 0.5 - reach))
        self.last = min(int(np.searchsorted(below, 0.5 + reach)), len(self.levels) - 1)

    def of(self, weights: Floats) -> Floats:
        """(draws, images) how often each image is drawn -> (draws,), rounded down."""
        twice = 2 * (weights @ self._counted())  # (draws, levels) queries up to each level
        total = (weights @ self.sizes)[:, None]
        below = self.first > 0 and (twice[:, 0] >= total[:, 0]).any()
        above = self.last + 1 < len(self.levels) and (twice[:, -1] <= total[:, 0]).any()
        if below or above:
            self.first, self.last = 0, len(self.levels) - 1
            return self.of(weights)
        levels = self.levels[self.first : self.last + 1]
        low, high = (twice >= total).argmax(axis=1), (twice > total).argmax(axis=1)
        middle: Floats = np.floor((levels[low] + levels[high]) / 2)
        return middle

    def _counted(self) -> Floats:
        """(images, levels) how many queries of each image have at most each value."""
        width = self.last + 1 - self.first
        near = self.place <= self.last
        column = np.maximum(self.place[near] - self.first, 0)
        key = self.image[near] * width + column
        table = np.bincount(key, minlength=self.images * width).reshape(self.images, width)
        return np.cumsum(table, axis=1, dtype=np.float64)
