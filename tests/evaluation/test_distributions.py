"""Distributions without SciPy, against SciPy."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from simgrad.evaluation.distributions import (
    largest_t_quantile,
    largest_t_tail,
    share_bound,
    t_tail,
)

FREEDOMS = [1, 1.5, 2, 3.3, 7, 40, 999, 1e4, 1e6]


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_students_t(freedom: float) -> None:
    for t in (0.0, 0.1, 1.0, 2.5, 8.0, 40.0):
        right = 2 * stats.t.sf(t, freedom)
        assert t_tail(t, freedom) == t_tail(-t, freedom) == pytest.approx(right, rel=1e-7)
    for tail in (0.5, 0.05, 1e-4):
        right = stats.t.isf(tail / 2, freedom)
        assert largest_t_quantile(tail, 1, freedom) == pytest.approx(right, rel=1e-6)


def test_what_is_beyond_all_numbers() -> None:
    assert t_tail(math.inf, 3) == 0
    assert math.isnan(t_tail(math.nan, 3))
    assert math.isnan(largest_t_tail(math.nan, 4, 3))


@pytest.mark.parametrize("freedom", [1.0, 2.0, 4.5, 30.0, 5000.0])
@pytest.mark.parametrize("comparisons", [3, 10, 78])
def test_the_largest_of_several(comparisons: int, freedom: float) -> None:
    """By SciPy's quadrature over the chi distribution of the shared estimate."""
    for t in (0.5, 2.0, 4.0, 12.0):

        def within(s: float, t: float = t) -> float:
            share = (2 * stats.norm.cdf(t * s) - 1) ** comparisons
            return float(share * stats.chi.pdf(s * np.sqrt(freedom), freedom) * np.sqrt(freedom))

        middle = 1.0 if freedom > 100 else 0.3
        parts = [integrate.quad(within, a, b, limit=200)[0] for a, b in ((0, middle), (middle, 9))]
        assert largest_t_tail(t, comparisons, freedom) == pytest.approx(1 - sum(parts), abs=2e-7)
    quantile = largest_t_quantile(0.05, comparisons, freedom)
    assert largest_t_tail(quantile, comparisons, freedom) == pytest.approx(0.05)


@pytest.mark.parametrize("freedom", [1.0, 2.5, 40.0])
@pytest.mark.parametrize("known", [0.05, 0.5, 0.99])
def test_a_students_t_plus_a_normal_variable(freedom: float, known: float) -> None:
    """Behrens and Fisher's distribution by SciPy: the sum's tail, given the normal variable."""
    student, normal = np.sqrt(1 - known), np.sqrt(known)
    for x in (0.5, 2.0, 6.0):

        def above(z: float, x: float = x) -> float:
            ends = stats.t.sf((x - normal * z) / student, freedom)
            ends += stats.t.cdf((-x - normal * z) / student, freedom)
            return float(ends * stats.norm.pdf(z))

        right = integrate.quad(above, -9, 9, limit=200, points=(-x / normal, x / normal))[0]
        assert largest_t_tail(x, 1, freedom, known) == pytest.approx(right, rel=1e-5, abs=1e-9)


def test_the_largest_of_one_and_of_a_known_spread() -> None:
    assert largest_t_tail(2.2, 1, 7) == t_tail(2.2, 7)
    sidak = 1 - (1 - 2 * stats.norm.sf(2.2)) ** 6
    assert largest_t_tail(2.2, 6, 1e9) == pytest.approx(sidak)


@pytest.mark.parametrize(("failures", "runs"), [(0, 3), (0, 10), (2, 10), (9, 10)])
def test_the_share_of_failures(failures: int, runs: int) -> None:
    right = stats.beta.ppf(0.95, failures + 1, runs - failures)
    assert share_bound(failures, runs) == pytest.approx(right)
    assert share_bound(runs, runs) == 1
