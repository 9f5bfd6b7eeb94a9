"""What a plan takes for granted, and which gap it can show."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from simgrad.choosing import stated


def test_a_pair_with_that_gap_is_told_apart_in_four_of_five_studies() -> None:
    """Simulated: with very many images, draws differ by search and seed alone."""
    draws, random = 5, np.random.default_rng(0)
    gap = stated.smallest_gap(2, draws, images=10**9, searches=draws)
    spread = (stated._SEARCH**2 + stated._SEED**2) ** 0.5
    first, second = random.normal(0, spread, (2, 4000, draws))
    told = ttest_ind(first + gap, second, axis=1).pvalue < 0.05
    assert 0.76 < told.mean() < 0.86


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ((2, 3, 500, 3), (2, 5, 500, 5)),
        ((5, 3, 500, 3), (2, 3, 500, 3)),
        ((2, 3, 100, 3), (2, 3, 500, 3)),
        ((2, 3, 500, 1), (2, 3, 500, 3)),  # seeds of one search leave its luck in
    ],
)
def test_more_of_anything_shows_smaller_gaps(
    more: tuple[int, int, int, int], less: tuple[int, int, int, int]
) -> None:
    assert stated.smallest_gap(*more) > stated.smallest_gap(*less)


def test_what_runs_differ_by_is_what_the_study_shows() -> None:
    page = Path(__file__).parents[2] / "results" / "flickr8k" / "study" / "spread.md"
    rows = [line.split("|") for line in page.read_text().splitlines() if line.startswith("| ")]
    shown = {row[1].strip(): float(row[3]) for row in rows[1:]}
    assert shown == {
        "search": stated._SEARCH,
        "seed": stated._SEED,
        "image": stated._IMAGE,
        "image and seed": stated._IMAGE_AND_SEED,
    }


def test_rates_are_stated_for_the_models_that_are_taken_by_default() -> None:
    narrow = stated.pace_of("vse++(dimension=256, word_dimension=128)", False)
    for model, on_gpu in (("light", False), ("vse++", True), ("vse++", False)):
        assert stated.pace_of(model, on_gpu) not in (None, narrow)
    assert narrow is not None
    assert stated.pace_of("vsrn", False) is None
