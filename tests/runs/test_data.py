"""A run knows its data: recorded however they came, compared whenever they are opened again."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.data import Dataset, Split, open_dataset
from simgrad.retriever.counting import RunBatches
from simgrad.retriever.opening import open_folder
from simgrad.runs.recipe import Recipe
from simgrad.training import Run, train
from simgrad.training.rounds import mine_run
from tests.data import layout_writers as write

OTHER = "scenes(train=50, val=10, test=10, features=global, seed=3)"


def change_a_caption(folder: Path) -> None:
    file = folder / "train_caps.txt"
    lines = file.read_text().splitlines()
    lines[0] = "something else entirely"
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture
def precomp(tmp_path: Path) -> Path:
    return write.precomp(tmp_path / "coco_precomp")


@pytest.fixture
def quick() -> Any:
    def make(**changes: Any) -> Recipe:
        base = Recipe(
            model="vse++(dimension=8, word_dimension=8)", epochs=1, batch=8, device="cpu",
            workers=0, min_count=1,
        )  # fmt: skip
        return base.replace(**changes)

    return make


def test_a_data_set_that_was_handed_over_is_the_one_recorded(quick: Any, tmp_path: Path) -> None:
    """The recipe names the default world; results must be those of what was used."""
    given = open_dataset(OTHER)
    run = train(quick(), tmp_path / "run", dataset=given, quiet=True)
    assert run.recipe.data == OTHER
    assert run.dataset().fingerprint() == given.fingerprint()
    assert len(run.ranks().i2t) == 10
    again = train(quick(), tmp_path / "run", dataset=given, quiet=True)
    assert again.test == run.test
    with pytest.raises(InputError, match="other data"):
        train(quick(), tmp_path / "run", quiet=True)


def test_how_it_was_opened_is_recorded(quick: Any, precomp: Path, tmp_path: Path) -> None:
    given = open_dataset(precomp, layout="precomputed", published=True)
    run = train(quick(), tmp_path / "run", dataset=given, quiet=True)
    assert run.info["dataset"]["origin"]["published"]
    assert run.dataset().fingerprint() == given.fingerprint()


def test_a_data_set_made_in_python_cannot_be_opened_again(quick: Any, tmp_path: Path) -> None:
    world = open_dataset(OTHER)
    given = Dataset("mine", "by hand", world.splits)
    run = train(quick(), tmp_path / "run", dataset=given, quiet=True)
    with pytest.raises(InputError, match="put together in Python"):
        run.dataset()
    assert train(quick(), tmp_path / "run", dataset=given, quiet=True).test == run.test
    with pytest.warns(UserWarning, match="not what it was trained on"):
        assert run.dataset(data="scenes(train=4, features=global)").split("train").num_images == 4


def test_paths_hold_wherever_one_stands(
    quick: Any, precomp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(precomp.parent)
    run = train(quick(data=precomp.name), "run", quiet=True)
    assert run.recipe.data == str(precomp)
    monkeypatch.chdir("/")
    there = Run(precomp.parent / "run")
    assert there.dataset().split("train").num_images == 4
    assert train(quick(data=str(precomp)), there.path, quiet=True).test == there.test
    # Also within a model's spec, and only what is there.
    monkeypatch.chdir(tmp_path)
    os.makedirs("my/weights")
    recipe = quick(model="vse++(backbone=vgg19, weights=my/weights)").settled()
    assert f"weights={tmp_path}/my/weights" in recipe.model
    assert quick(features="not/there").settled().features == "not/there"


def test_data_that_changed_are_refused_unless_they_are_meant(
    quick: Any, precomp: Path, tmp_path: Path
) -> None:
    run = train(quick(data=str(precomp)), tmp_path / "run", quiet=True)
    change_a_caption(precomp)
    for use in (
        lambda: run.dataset(),
        lambda: RunBatches(open_folder(run, device="cpu"), batches=1),
        lambda: mine_run(run, tmp_path / "lists", 3),
    ):
        with pytest.raises(InputError, match=r"changed since it was trained.*`data="):
            use()
    with pytest.warns(UserWarning, match="differ"):
        run.dataset(data=str(precomp))


def test_a_run_is_not_resumed_on_other_data_but_where_they_moved(
    quick: Any, precomp: Path, tmp_path: Path
) -> None:
    recipe = quick(data=str(precomp), epochs=3)
    train(recipe, tmp_path / "run", quiet=True, stop_after=0.0)
    moved = shutil.copytree(precomp, tmp_path / "moved")
    train(recipe.replace(data=str(moved)), tmp_path / "run", quiet=True, stop_after=0.0)
    assert Run(tmp_path / "run").recipe.data == str(moved)
    change_a_caption(moved)
    with pytest.raises(InputError, match="other data"):
        train(recipe.replace(data=str(moved)), tmp_path / "run", quiet=True)
    assert train(recipe, tmp_path / "run", quiet=True).finished


def test_what_an_earlier_version_recorded_is_compared_as_far_as_it_goes(
    quick: Any, precomp: Path, tmp_path: Path
) -> None:
    run = train(quick(data=str(precomp)), tmp_path / "run", quiet=True)
    old = {k: v for k, v in run.info.items() if k not in ("dataset", "format")}
    (run.path / "run.json").write_text(json.dumps(old))
    assert Run(run.path).dataset().split("train").num_images == 4
    change_a_caption(precomp)
    with pytest.warns(UserWarning, match="earlier version"):
        Run(run.path).dataset()


def test_a_short_word_for_a_data_set_and_a_run(quick: Any, tmp_path: Path) -> None:
    given = open_dataset(OTHER)
    assert len(repr(given)) < 400
    run = train(quick(), tmp_path / "run", dataset=given, quiet=True)
    assert repr(run) == "<run run: focused-deviance, seed 0, finished>"


def test_a_changed_file_of_a_finished_run_is_noticed(quick: Any, tmp_path: Path) -> None:
    run = train(quick(data=OTHER), tmp_path / "run", quiet=True)
    whole = {p.name: p.read_bytes() for p in run.path.iterdir() if p.is_file()}
    random = np.random.default_rng(0)
    for name, read in (
        ("run.json", lambda r: r.info),
        ("recipe.yaml", lambda r: r.recipe),
        ("metrics.jsonl", lambda r: r.history),
    ):
        right = read(Run(run.path))
        for _ in range(20):
            content = bytearray(whole[name])
            content[random.integers(len(content))] ^= 1 << random.integers(8)
            (run.path / name).write_bytes(content)
            try:
                found = read(Run(run.path))
            except InputError:
                continue
            if name == "run.json":  # the name of the checksum itself
                found = {k: v for k, v in found.items() if k in right}
            assert found == right, name
        (run.path / name).write_bytes(whole[name])


def test_a_part_of_the_training_images(quick: Any, tmp_path: Path) -> None:
    """The same ones whatever the seed, among those of a larger part; recorded and opened again."""
    whole = open_dataset(OTHER)
    few, more = (open_dataset(OTHER, train_images=n).split("train") for n in (10, 20))
    assert few.num_images == 10
    assert set(few.image_names) < set(more.image_names) < set(whole.split("train").image_names)
    owner = {c: whole.split("train").image_names[i] for c, i in _pairs(whole.split("train"))}
    assert all(owner[c] == few.image_names[i] for c, i in _pairs(few))

    run = train(quick(data=OTHER, train_images=10), tmp_path / "run", quiet=True)
    assert run.info["steps"] == 7  # 50 captions, 8 at a time
    assert list(run.dataset().split("train").image_names) == list(few.image_names)
    assert len(run.ranks().i2t) == 10  # all of the test split
    other = train(quick(data=OTHER, train_images=10, seed=1), tmp_path / "other", quiet=True)
    assert other.info["data_fingerprint"] == run.info["data_fingerprint"]
    assert run.info["data_fingerprint"] != whole.fingerprint()
    pixels = "scenes(train=4, val=1, test=1)"
    part = open_dataset(pixels, train_images=2)
    assert part.fingerprint() != open_dataset(pixels).fingerprint()

    with pytest.raises(InputError, match="51 of its 50 images"):
        open_dataset(OTHER, train_images=51)
    with pytest.raises(InputError, match="open a part"):
        train(quick(train_images=10), tmp_path / "refused", dataset=whole, quiet=True)
    handed = open_dataset(OTHER, train_images=10)
    same = train(quick(), tmp_path / "same", dataset=handed, quiet=True)
    assert same.recipe.train_images == 10
    assert same.test == run.test


def _pairs(split: Split) -> list[tuple[str, int]]:
    return list(zip(split.captions, split.image_of_caption.tolist(), strict=True))
