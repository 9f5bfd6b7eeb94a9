"""Student's t, the maximum of several, and a bound for shares, with NumPy and PyTorch alone.

`evaluate` and `compare` are part of the light core, which has no SciPy. Tests compare
each function with SciPy.
"""

import math
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
import torch

from simgrad.evaluation.declared import Floats

_TINY = 1e-300


def t_tail(t: float, freedom: float) -> float:
    """P(|T| > |t|): the two-sided p of Student's t."""
    if math.isnan(t):
        return math.nan
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def largest_t_tail(t: float, comparisons: int, freedom: float, known: float = 0.0) -> float:
    """P(any of several |T| > |t|): the studentized maximum modulus, Dunnett's T3 for all pairs.

    The numerators are independent, the estimate of their spread is shared. `known`: the share of
    the variance that is as good as known, while the rest is an estimate with those degrees of
    freedom (Behrens and Fisher's distribution). Of one comparison and nothing known it is
    Student's t.
    """
    if math.isnan(t) or (comparisons == 1 and not known):
        return t_tail(t, freedom)
    points, weights = _estimated_deviations(round(min(freedom, _MANY), 6))
    if known:
        points = 1 / np.sqrt((1 - known) / points**2 + known)
    within = 1 - 2 * _normal_above(abs(t) * points)
    return max(0.0, 1 - float(weights @ within**comparisons))


def largest_t_quantile(tail: float, comparisons: int, freedom: float, known: float = 0.0) -> float:
    """The t that any of several |T| exceeds with probability `tail`."""
    return _solved(lambda t: largest_t_tail(t, comparisons, freedom, known), tail)


def share_bound(failures: int, runs: int, tail: float = 0.05) -> float:
    """The largest share of failures that `failures` of `runs` do not rule out (Clopper & Pearson).

    Examples:
        >>> from simgrad.evaluation.distributions import share_bound
        >>> round(share_bound(0, 3), 2)
        0.63
    """
    if failures >= runs:
        return 1.0

    def seen_or_fewer(share: float) -> float:
        return math.fsum(
            math.comb(runs, j) * share**j * (1 - share) ** (runs - j) for j in range(failures + 1)
        )

    return _solved(seen_or_fewer, tail, most=1.0)


def _solved(tail_of: Callable[[float], float], tail: float, most: float | None = None) -> float:
    """Where a falling function has the value `tail`."""
    low, high = 0.0, most or 1.0
    while most is None and tail_of(high) > tail and high < 1e12:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        if middle in (low, high):  # no number is between them
            break
        low, high = (middle, high) if tail_of(middle) > tail else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _incomplete_beta(b, a, 1 - x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + numerator * d)
            c = _nonzero(1 + numerator / c)
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


_MANY = 1e5  # degrees of freedom from which the spread is as good as known
_NODES = 400


@cache
def _nodes() -> tuple[Floats, Floats]:
    """Of Gauss and Legendre, between -1 and 1."""
    nodes, widths = np.polynomial.legendre.leggauss(_NODES)
    return np.asarray(nodes), np.asarray(widths)


@lru_cache(maxsize=1024)
def _estimated_deviations(freedom: float) -> tuple[Floats, Floats]:
    """Values of an estimated standard deviation whose truth is 1, and their probabilities."""
    if freedom >= _MANY:
        return np.ones(1), np.ones(1)
    # In the logarithm of the estimate its density is smooth, also for one degree of freedom: it
    # falls like exp(freedom x) to the left, and much faster to the right.
    low, high = -max(9 / math.sqrt(2 * freedom), 40 / freedom), 9 / math.sqrt(2 * freedom + 15)
    nodes, widths = _nodes()
    x, half = low + (high - low) / 2 * (nodes + 1), (high - low) / 2
    log_constant = freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2) + math.log(2)
    weights = half * widths * np.exp(log_constant + freedom * x - freedom / 2 * np.exp(2 * x))
    return np.exp(x), weights


def _normal_above(x: Floats) -> Floats:
    return np.asarray(torch.special.ndtr(torch.from_numpy(-x)))
