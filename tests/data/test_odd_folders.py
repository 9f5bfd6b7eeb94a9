"""Folders as people have them (odd_folders.py): read right, or refused with the nearest layout."""

from pathlib import Path, PureWindowsPath

import numpy as np
import pytest
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.data import Dataset, open_dataset
from simgrad.data.pictures import reason_of

from . import layout_writers as write
from .odd_folders import CASES, Odd


def _captions(dataset: Dataset) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for split in dataset.splits.values():
        for row, caption in enumerate(split.captions):
            name = split.image_names[int(split.image_of_caption[row])]
            found.setdefault(name, []).append(caption.strip())
    return found


def _check_pictures(dataset: Dataset) -> None:
    """Each image is its own picture, known by its colour."""
    for split in dataset.splits.values():
        assert split.pictures is not None
        for row, name in enumerate(split.image_names):
            bare = PureWindowsPath(name).name  # cuts at / and at \\
            stem = bare if "." in bare else f"{bare}.jpg"
            colours = [write.colour(n) for n in (stem, stem.replace(".JPG", ".jpg"))]
            middle = np.asarray(split.pictures.picture(row))[4, 6].astype(int)
            assert min(np.abs(middle - colour).max() for colour in colours) < 8


def test_pictures_that_are_mostly_missing_are_noted(tmp_path: Path) -> None:
    lines = [f"{row}.jpg\ta dog on grass" for row in range(40)]
    (tmp_path / "captions.txt").write_text("\n".join(lines), encoding="utf-8")
    write.write_pictures(tmp_path, [f"{row}.jpg" for row in range(25)])
    assert "missing" not in repr(open_dataset(tmp_path))
    for row in range(3, 25):
        (tmp_path / f"{row}.jpg").unlink()
    told = repr(open_dataset(tmp_path))
    assert "most pictures are missing: 37 of 40 looked at are not in" in told


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_read_right_or_refused_with_the_nearest(case: Odd, tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    folder.mkdir()
    place = case.make(folder) or folder
    if case.captions is None:
        with pytest.raises(InputError) as told:
            open_dataset(str(place))
        for word in (case.layout, *case.words):
            assert word in str(told.value)
        assert len(str(told.value)) < 900
        return
    dataset = open_dataset(str(place))
    assert dataset.layout == case.layout
    read = {Path(name).name if case.layout == "coco" else name: captions
            for name, captions in _captions(dataset).items()}  # fmt: skip
    assert read == case.captions
    _check_pictures(dataset)
    notes = " ".join(dataset.notes)
    assert all(word in notes for word in case.words)


def test_a_folder_of_pictures_alone_is_told_the_simplest_way(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "dog.jpg")
    with pytest.raises(InputError, match=r"Simplest is a file captions.txt in it.*dog.jpg, A dog"):
        open_dataset(str(tmp_path))
    (tmp_path / "dog.jpg").rename(tmp_path / "dog.txt")
    with pytest.raises(InputError) as told:
        open_dataset(str(tmp_path))
    assert "Simplest" not in str(told.value)


def test_a_picture_that_was_cut_off_is_told_in_plain_words() -> None:
    """As Pillow has it, with a number that means nothing to a person."""
    assert reason_of(OSError("image file is truncated (0 bytes not processed)")) == (
        "the file ends too early"
    )
