"""How sure the numbers of one system are. There is one way for one run, and one for several.

The unit is the image with all its captions, because an image's captions stand or fall together:
to treat five captions as five independent queries would claim more certainty than there is.

- One run: a bootstrap over images, and the percentiles of what it gives.
- Several seeds: chance has two sources, which images are in the test split and which seeds were
  drawn. Their variances add. So few seeds have heavier tails than a normal distribution, so
  Student's t with Welch's degrees of freedom turns the sum into an interval, cut off at the bounds
  of the metric. Simulated with seeds that differ a lot, 95% intervals hold the truth 88% of the
  time with two seeds, 93% with three, 94% with five; with seeds that differ little, 95%.
"""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.declared import metric_of
from simgrad.evaluation.metrics import Metrics, metrics_of
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.resampling import draw_images, draw_medians, shares

LEVEL = 0.95
_RESAMPLES = 2000


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
    """An interval for every metric of one run: a percentile bootstrap over images.

    Examples:
        >>> metrics = simgrad.evaluate_similarities(torch.rand(20, 20))
        >>> low, high = simgrad.evaluation.intervals(metrics)["rsum"]
        >>> low < metrics.rsum < high
        True
    """
    ranks = ranks.ranks if isinstance(ranks, Metrics) else ranks
    tails = tails_of(level)
    parts = shares(ranks, linear=True)
    drawn = np.concatenate([w @ parts.values for w in draw_images(ranks, resamples, seed)])
    low, high = np.quantile(drawn, tails, axis=0)
    result = {n: (float(a), float(b)) for n, a, b in zip(parts.names, low, high, strict=True)}
    for name, medians in draw_medians(ranks, resamples, seed).items():
        low, high = np.quantile(medians, tails, method="nearest")
        result[name] = (float(low), float(high))
    return {name: _within(name, *bounds) for name, bounds in result.items()}


def estimates(
    tables: Sequence[Mapping[str, float]] | None = None,
    ranks: Sequence[Ranks] = (),
    *,
    level: float = LEVEL,
) -> dict[str, Estimate]:
    """Every metric of one system, from the metrics of its runs and the ranks that were kept.

    Without tables the metrics are those of the ranks. Without ranks nothing is known of the images,
    and an interval says how much seeds differ, where there are several.

    Examples:
        >>> runs = [simgrad.evaluate_similarities(torch.rand(20, 20)).ranks for _ in range(3)]
        >>> one = simgrad.evaluation.estimates(ranks=runs)["rsum"]
        >>> one.low < one.mean < one.high
        True
    """
    if tables is None:
        tables = [metrics_of(run).to_dict() for run in ranks]
    if not tables:
        return {}
    if len(tables) == 1:
        bounds = intervals(ranks[0], level=level) if len(ranks) == 1 else {}
        found = {}
        for name, value in tables[0].items():
            low, high = bounds.get(name, (None, None))
            found[name] = Estimate(float(value), low, high, (float(value),))
        return found
    names = dict.fromkeys(name for table in tables for name in table)
    images = _image_variances(ranks, names)
    found = {}
    for name in names:
        values = tuple(float(table[name]) for table in tables if name in table)
        mean, reach = fmean(values), _reach(values, images.get(name), level)
        if reach is None or math.isnan(mean):
            found[name] = Estimate(mean, values=values)
        else:
            found[name] = Estimate(mean, *_within(name, mean - reach, mean + reach), values)
    return found


def _within(name: str, low: float, high: float) -> tuple[float, float]:
    """An interval, cut off where the metric ends."""
    least, most = metric_of(name).bounds
    return max(least, low), min(most, high)


def _image_variances(ranks: Sequence[Ranks], names: Container[str]) -> dict[str, tuple[float, int]]:
    """metric -> variance of its mean over seeds that is due to the choice of images, images.

    Medians take longest: only those among `names`.
    """
    if not ranks or any(len(run.i2t) != len(ranks[0].i2t) for run in ranks):
        return {}
    parts = [shares(run, linear=True) for run in ranks]
    each = np.mean([part.values for part in parts], axis=0)  # (images, metrics) adds up to metrics
    variance = np.zeros(each.shape[1])
    for fold in np.unique(ranks[0].fold):
        rows = each[ranks[0].fold == fold]
        if len(rows) < 2:
            return {}
        variance += len(rows) * rows.var(axis=0, ddof=1)
    found = dict(zip(parts[0].names, map(float, variance), strict=True))
    # A median has no shares: the same images are drawn for all seeds.
    medians = [draw_medians(run, _RESAMPLES // 4, 0, names) for run in ranks]
    for name in medians[0]:
        drawn = np.mean([run[name] for run in medians], axis=0)
        found[name] = float(drawn.var(ddof=1))
    return {name: (value, len(each)) for name, value in found.items()}


def _reach(values: Sequence[float], images: tuple[float, int] | None, level: float) -> float | None:
    """Half the width of the interval around a mean over seeds; None: nothing is known."""
    from scipy.special import stdtrit  # scipy.stats takes two seconds to import

    tails_of(level)
    parts = [(stdev(values) ** 2 / len(values), len(values) - 1)] if len(values) > 1 else []
    if images is not None:
        parts.append((images[0], images[1] - 1))
    total = math.fsum(variance for variance, _ in parts)
    if total == 0:
        return 0.0 if parts else None
    freedom = total**2 / math.fsum(variance**2 / df for variance, df in parts)
    return float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(total)


def tails_of(level: float) -> list[float]:
    """The quantiles between which a share `level` lies."""
    if not 0 < level < 1:
        raise InputError(f"a confidence level lies between 0 and 1, not at {level}.")
    return [(1 - level) / 2, (1 + level) / 2]
