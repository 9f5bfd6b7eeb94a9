"""Two small runs on the embedded world, trained once; and the small run of the training tests."""

from pathlib import Path

import pytest

from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import Searcher
from simgrad.runs.recipe import Recipe
from simgrad.training import train
from tests.training.conftest import scenes, small, weights

__all__ = ["DATA", "easy", "runs", "scenes", "searcher", "small", "weights"]

DATA = "scenes(train=300, val=40, test=60, features=global)"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = {}
    for name, objective in (("nt", "nt-xent"), ("tri", "triplet")):
        recipe = Recipe(
            data=DATA,
            model="vse++(dimension=64, word_dimension=32)",
            objective=objective,
            epochs=3,
            lr=3e-3,
            batch=64,
        )
        train(recipe, folder / name, quiet=True)
        made[name] = folder / name
    return made


@pytest.fixture(scope="session")
def searcher(runs: dict[str, Path]) -> Searcher:
    return Searcher(open_folder(runs["nt"]))


@pytest.fixture(scope="session")
def easy(searcher: Searcher) -> tuple[str, int]:
    """A caption that finds its own picture first, and the picture's row."""
    assert searcher.split is not None
    for row, caption in enumerate(searcher.split.captions):
        image = int(searcher.split.image_of_caption[row])
        if searcher.sentence(caption, 1).images[0].row == image:
            return caption, image
    raise AssertionError("the model has learned nothing")
