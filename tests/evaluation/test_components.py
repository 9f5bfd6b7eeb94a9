"""Where luck comes from: simulated replicates whose parts are known."""

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks, metrics_of
from simgrad.evaluation.crossed import components

IMAGES = 500


def simulated(hard: np.ndarray, skill: float) -> Ranks:
    """Images that are easier than `skill` are found first, in both directions; others are not."""
    rank = np.where(hard < skill, 1, 50)
    names, nothing = tuple(map(str, range(len(hard)))), np.zeros(len(hard), bool)
    place = np.arange(len(hard))
    return Ranks(rank, rank, rank, place, names, names, 0 * place, nothing, nothing)


def replicates(search: float, seed: float, *, new_images: bool) -> list[list[Ranks]]:
    random = np.random.default_rng(4)
    hard, draws = (np.arange(IMAGES) + 0.5) / IMAGES, []
    for _ in range(200):
        hard = random.random(IMAGES) if new_images else hard
        middle = 0.5 + random.normal(0, search)
        draws.append([simulated(hard, middle + random.normal(0, seed)) for _ in range(3)])
    return draws


@pytest.mark.parametrize("new_images", [False, True])
@pytest.mark.parametrize(("search", "seed"), [(0.03, 0.01), (0.0, 0.02), (0.04, 0.0)])
def test_the_parts_are_found(search: float, seed: float, new_images: bool) -> None:
    found = components(replicates(search, seed, new_images=new_images), new_images=new_images)
    images = 600 * np.sqrt(0.25 / IMAGES)
    assert found.images == pytest.approx(images, rel=0.05)
    assert found.seed == pytest.approx(600 * seed, rel=0.15, abs=0.5)
    assert found.search == pytest.approx(600 * search, rel=0.25, abs=4 if new_images else 1)


def test_the_parts_are_of_the_metric() -> None:
    run = simulated(np.random.default_rng(0).random(IMAGES), 0.4)
    assert metrics_of(run)["rsum"] == pytest.approx(600 * (run.i2t == 1).mean())


def test_one_run_each_says_nothing_of_seeds() -> None:
    draws = [draw[:1] for draw in replicates(0.03, 0.01, new_images=False)]
    assert components(draws).seed is None
    with pytest.raises(InputError, match="two replicates"):
        components(draws[:1])
