"""Zero-shot classification: whose name fits a picture best."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import simgrad
from simgrad.core.errors import InputError
from simgrad.data.classes import METRIC, read_classes
from simgrad.retriever.forgetting import accuracy
from simgrad.runs.recipe import Recipe

COLOURS = {"deep_red": (200, 20, 20), "green": (10, 180, 30), "blue": (0, 0, 220)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five pictures of each colour; two of the green ones are blue."""
    for name, colour in COLOURS.items():
        (tmp_path / "colours" / name).mkdir(parents=True)
        for number in range(5):
            shown = COLOURS["blue"] if name == "green" and number < 2 else colour
            picture = Image.new("RGB", (600, 600), shown)
            picture.save(tmp_path / "colours" / name / f"{number}.png")
    (tmp_path / "colours" / ".hidden").mkdir()
    return tmp_path / "colours"


def by_colour(items: list[Any]) -> Any:
    if isinstance(items[0], str):
        names = [name.replace("_", " ") for name in COLOURS]
        return np.array([[1.0 + 99 * (f" {name}" in text) for name in names] for text in items])
    return np.array([np.asarray(picture).reshape(-1, 3).mean(0) + 1 for picture in items])


def test_pictures_of_a_folder_are_told_by_the_names_of_their_classes(folder: Path) -> None:
    classes = read_classes(f"classes(path={folder})")
    assert classes is not None
    assert classes.names == ["blue", "deep red", "green"]
    found = accuracy(simgrad.open(by_colour, device="cpu"), classes)
    assert found == {METRIC: pytest.approx(100 * 13 / 15)}
    assert classes.to_dict() == {
        "dataset": "colours", "metric": METRIC, "images": 15, "classes": 3,
    }  # fmt: skip


def test_a_model_that_tells_nothing_apart_has_0(folder: Path) -> None:
    classes = read_classes(f"classes(path={folder})")
    assert classes is not None
    same = simgrad.open(lambda items: torch.ones(len(items), 3), device="cpu")
    assert accuracy(same, classes) == {METRIC: 0.0}


def test_of_several_prompts_a_class_has_the_mean(folder: Path) -> None:
    """The second sentence turns the names round; the first weighs more."""
    (folder / "prompts.txt").write_text("a photo of a {}.\n\nthe opposite of {}!\n")
    classes = read_classes(f"classes(path={folder})")
    assert classes is not None
    assert classes.prompts == ["a photo of a {}.", "the opposite of {}!"]
    asked: list[str] = []

    def opposite(items: list[Any]) -> Any:
        if isinstance(items[0], str):
            asked.extend(items)
            made = by_colour(items)
            return made if items[0].startswith("a photo") else 0.4 * made.max() - 0.2 * made
        return by_colour(items)

    found = accuracy(simgrad.open(opposite, device="cpu"), classes)
    assert asked[:2] == ["a photo of a blue.", "a photo of a deep red."]
    assert asked[3] == "the opposite of blue!"
    rows = {prompt: unit(opposite([prompt.replace("{}", n) for n in classes.names]))
            for prompt in classes.prompts}  # fmt: skip
    mean = unit(sum(rows.values()))
    pictures = unit(by_colour([Image.open(path) for path in classes.pictures]))
    right = ((pictures @ mean.T).argmax(1) == np.array(classes.class_of)).mean()
    assert found[METRIC] == pytest.approx(100 * right)


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_recipe_keeps_where_the_folder_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    kept = Recipe(also="classes( path = colours )").settled().also
    assert kept == f"classes(path={folder})"


def test_bad_folders_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    assert read_classes("scenes(train=8)") is None
    with pytest.raises(InputError, match="no such folder"):
        read_classes(f"classes(path={tmp_path / 'none'})")
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="no picture in its folder 'empty'"):
        read_classes(f"classes(path={folder})")
    (folder / "empty").rmdir()
    (folder / "prompts.txt").write_text("a photo of a {}.\na photo\n")
    with pytest.raises(InputError, match=r"prompts\.txt, sentence 2"):
        read_classes(f"classes(path={folder})")
    (folder / "prompts.txt").write_bytes(b"ein Photo f\xfcr {}")
    with pytest.raises(InputError, match=r"prompts\.txt: not UTF-8 text \(byte 11\)"):
        read_classes(f"classes(path={folder})")
    (tmp_path / "bare").mkdir()
    with pytest.raises(InputError, match="no folder for each class"):
        read_classes(f"classes(path={tmp_path / 'bare'})")
