"""How sure the numbers are: an interval for every cell, and each system against two others.

An interval covers both sources of chance: which images were in the test split, and which seeds were
drawn. The image with all its captions is the unit. Variances add, and Student's t with
Welch-Satterthwaite degrees of freedom turns them into an interval. Differences are tested by
`simgrad.evaluation.compare_many`, paired over the same images and corrected by Holm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation import Difference, Ranks, compare_many
from simgrad.evaluation.labels import metric_of
from simgrad.evaluation.resampling import shares
from simgrad.report.material import Material, System

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """One metric of one system."""

    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]  # one for each run

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds."""
        return stdev(self.values) if len(self.values) > 1 else None


def estimates(system: System, split: str) -> dict[str, Estimate]:
    """Every metric of a system, with an interval where one can be had."""
    tables = system.values(split)
    if not tables:
        return {}
    images = _image_variances(system.ranks) if split == "test" else {}
    found = {}
    for name in tables[0]:
        values = tuple(float(t[name]) for t in tables if name in t)
        mean, reach = fmean(values), _reach(values, images.get(name))
        least, most = metric_of(name).bounds
        low = None if reach is None else max(least, mean - reach)
        high = None if reach is None else min(most, mean + reach)
        found[name] = Estimate(mean, low, high, values)
    return found


def _image_variances(ranks: Sequence[Ranks]) -> dict[str, tuple[float, int]]:
    """metric -> variance of its mean over seeds that is due to the choice of images, images."""
    if not ranks or any(len(r.i2t) != len(ranks[0].i2t) for r in ranks):
        return {}
    parts = [shares(r, linear=True) for r in ranks]
    each = np.mean([part.values for part in parts], axis=0)  # (images, metrics) adds up to metrics
    variance = np.zeros(each.shape[1])
    for fold in np.unique(ranks[0].fold):
        rows = each[ranks[0].fold == fold]
        if len(rows) < 2:
            return {}
        variance += len(rows) * rows.var(axis=0, ddof=1)
    return {n: (float(v), len(each)) for n, v in zip(parts[0].names, variance, strict=True)}


def _reach(values: Sequence[float], images: tuple[float, int] | None) -> float | None:
    """Half the width of the interval."""
    from scipy import stats

    parts = []
    if len(values) > 1:
        parts.append((stdev(values) ** 2 / len(values), len(values) - 1))
    if images is not None:
        parts.append((images[0], images[1] - 1))
    total = math.fsum(variance for variance, _ in parts)
    if not parts:
        return None
    if total == 0:
        return 0.0
    freedom = total**2 / math.fsum(variance**2 / df for variance, df in parts)
    return float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(total)


@dataclass(frozen=True)
class Standing:
    """One group of comparable systems."""

    group: str
    systems: tuple[System, ...]
    numbers: dict[str, dict[str, Estimate]]  # label -> metric -> estimate

    @cached_property
    def order(self) -> list[System]:
        """Systems with numbers, best first."""
        known = [s for s in self.systems if "rsum" in self.numbers[s.label]]
        return sorted(known, key=lambda s: -self.numbers[s.label]["rsum"].mean)

    @cached_property
    def baseline(self) -> System | None:
        """What the others are compared with: the declared one; else the weakest."""
        declared = [s for s in self.order if s.baseline]
        return declared[0] if declared else self.order[-1] if len(self.order) > 1 else None

    @cached_property
    def against_baseline(self) -> dict[str, Difference]:
        return self._against(self.baseline)

    @cached_property
    def against_best(self) -> dict[str, Difference]:
        """Every other system minus the best."""
        return self._against(self.order[0] if self.order else None)

    @cached_property
    def first_seeds(self) -> bool:
        """One system has a single run and another several: only first seeds can be compared."""
        numbers = {len(s.ranks) for s in self.order if s.ranks}
        return 1 in numbers and len(numbers) > 1

    def lead(self) -> Difference | None:
        """The best minus the second."""
        if len(self.order) < 2:
            return None
        best, second = self.order[:2]
        if second is self.baseline:  # the very numbers that the table shows
            return self.against_baseline.get(best.label)
        gap = self.against_best.get(second.label)
        if gap is None:
            return None
        turned = replace(gap, first=gap.second, second=gap.first, difference=-gap.difference)
        return replace(turned, low=-gap.high, high=-gap.low)

    def _against(self, one: System | None) -> dict[str, Difference]:
        ranked = {s.label: s.ranks for s in self.order if s.ranks}
        if one is None or one.label not in ranked or len(ranked) < 2:
            return {}
        if self.first_seeds:
            ranked = {label: ranks[:1] for label, ranks in ranked.items()}
        try:
            return compare_many(ranked, one.label, "rsum")
        except InputError:  # ranked on different queries
            return {}


def standings(material: Material) -> list[Standing]:
    """Each group of the material."""
    return [
        Standing(name, tuple(systems), {s.label: estimates(s, material.split) for s in systems})
        for name, systems in material.groups.items()
    ]


def corrected(difference: Difference) -> float:
    """p after Holm's correction."""
    return difference.p if difference.p_holm is None else difference.p_holm


def signed(value: float) -> str:
    """+3.1, −0.4"""
    return f"{value:+.1f}".replace("-", "−")


def printed_p(p: float) -> str:
    """p = 0.012"""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
