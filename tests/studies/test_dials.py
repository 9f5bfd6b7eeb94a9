"""recipes/scenes-dials.yaml and the data that results/scenes/dials.py writes for it."""

import dataclasses
from pathlib import Path

import pytest

from simgrad.data import open_dataset
from simgrad.studies.plan import read_plan
from tests.processes import script as command
from tests.studies.rehearsal import RESULTS, rehearsed, train

RECIPE = RESULTS.parent / "recipes" / "scenes-dials.yaml"


def test_one_caption_of_the_same_scenes(tmp_path: Path) -> None:
    data = "scenes(train=12, val=4, test=5, features=global)"
    done = command(RESULTS / "scenes" / "dials.py", tmp_path / "one", "--data", data)
    assert done.returncode == 0, done.stderr
    whole, one = open_dataset(data), open_dataset(tmp_path / "one")
    train_split = one.split("train")
    assert train_split.image_of_caption.tolist() == list(range(12))
    assert list(train_split.captions) == [whole.split("train").captions[5 * i] for i in range(12)]
    for name in ("val", "test"):
        assert list(one.split(name).captions) == list(whole.split(name).captions)
    for name in ("train", "test"):
        mine, theirs = one.split(name).features, whole.split(name).features
        assert mine is not None
        assert theirs is not None
        rows = range(len(mine))
        assert (mine.rows(rows) == theirs.rows(rows)).all()


def test_every_group_turns_one_dial_and_takes_about_as_many_steps() -> None:
    plan = read_plan(RECIPE)
    photos = {"500 scenes": 500}
    for row in plan.rows:
        recipe = plan.recipe(row, 0)
        captions = photos.get(row.group, 1500) * (1 if row.group == "one caption" else 5)
        assert 350 <= -(-captions // recipe.batch) * recipe.epochs <= 360, row.label
        assert recipe.epochs == pytest.approx(6 * recipe.first_epochs, abs=0)
        assert recipe.decay_every * 3 == recipe.epochs * 2


@pytest.mark.long
def test_the_dials_are_trained_on_little(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    plan = rehearsed(read_plan(RECIPE), seeds=1)
    some = [row for row in plan.rows if row.group in ("as it is", "few words")]
    rows = tuple(row.with_changes(train_images=None) for row in some)
    study = train(dataclasses.replace(plan, rows=rows), tmp_path / "study")
    assert study.complete
