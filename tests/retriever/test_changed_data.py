"""Searching data that are no longer those of the run: said, never passed over."""

from pathlib import Path

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.lab.lab import Lab
from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import Searcher
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.training import train
from tests.data import layout_writers as write


def change(data: Path) -> None:
    for file in data.glob("*_ims.npy"):
        np.save(file, np.load(file)[::-1].copy())


def trained(data: Path, folder: Path) -> Path:
    recipe = Recipe(
        data=str(data), model="vse++(dimension=8, word_dimension=8)", epochs=1, batch=8,
        device="cpu", workers=0, min_count=1,
    )  # fmt: skip
    train(recipe, folder, quiet=True)
    return folder


def test_a_search_of_changed_data_is_refused_unless_they_are_meant(tmp_path: Path) -> None:
    data = write.precomp(tmp_path / "coco_precomp")
    run = trained(data, tmp_path / "run")
    assert Searcher(open_folder(run)).sentence("a dog", 1).searched_images
    change(data)
    with pytest.raises(InputError, match=r"changed since it was trained.*`data="):
        Searcher(open_folder(run))
    with pytest.warns(UserWarning, match="not what it was trained on"):
        meant = Searcher(open_folder(run, data=str(data)))
    assert meant.sentence("a dog", 1).searched_images


def test_two_runs_of_one_place_do_not_share_data_that_changed_between_them(tmp_path: Path) -> None:
    data = write.precomp(tmp_path / "coco_precomp")
    first = trained(data, tmp_path / "first")
    change(data)
    second = trained(data, tmp_path / "second")
    lab = Lab([first, second])
    try:
        assert lab.dataset(Run(second)).splits
        with pytest.raises(InputError, match="changed since it was trained"):
            lab.dataset(Run(first))
    finally:
        lab.close()
