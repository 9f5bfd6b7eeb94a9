"""What cannot be used is left out of a choice and said, or refused with the next command."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simgrad.choosing.omitting import LIST, left_out_before, look_through
from simgrad.core.derived import write_checked
from simgrad.core.errors import InputError
from simgrad.data.layouts.building import hashed_split
from simgrad.data.opening import open_dataset

COUNT = 160


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of pictures, all different, and a list of captions without a heading."""
    folder, rng = tmp_path / "photos", np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    names = [f"{i:04d}.jpg" for i in range(COUNT)]
    for name in names:
        noise = Image.fromarray(rng.integers(0, 255, (6, 8, 3), dtype=np.uint8))
        noise.resize((96, 72)).save(folder / "images" / name)
    lines = [f"{name}\tpicture number {name}" for name in names]
    (folder / "captions.txt").write_text("\n".join(lines) + "\n")
    return folder


def spoil(photos: Path, missing: int, broken: int) -> list[str]:
    """Damage the first pictures; their names."""
    files = sorted((photos / "images").iterdir())[: missing + broken]
    for file in files[:missing]:
        file.unlink()
    for file in files[missing:]:
        file.write_bytes(file.read_bytes()[:300])
    return [file.name for file in files]


def test_whole_data_are_left_alone(photos: Path, tmp_path: Path) -> None:
    looked = look_through(str(photos), None, tmp_path, strict=True)
    assert (looked.skip, looked.omitted, looked.found.problems) == (None, "", [])
    assert not (tmp_path / LIST).exists()


def test_a_few_lost_pictures_are_left_out_and_named(photos: Path, tmp_path: Path) -> None:
    lost = spoil(photos, missing=2, broken=1)
    looked = look_through(str(photos), None, tmp_path, strict=False)
    assert looked.omitted == f"2 missing and 1 broken pictures ({', '.join(lost)})"
    held = {name for split in looked.dataset.splits.values() for name in split.image_names}
    assert len(held) == COUNT - 3
    assert not held & set(lost)
    assert looked.found.problems == []
    assert looked.skip is not None
    again = open_dataset(photos, skip=looked.skip)  # as every run opens it
    assert again.fingerprint() == looked.dataset.fingerprint()


def test_many_are_refused_with_the_commands_that_leave_them_out(
    photos: Path, tmp_path: Path
) -> None:
    spoil(photos, missing=4, broken=0)  # 2.5 %
    with pytest.raises(InputError, match=r"4 missing pictures, 2\.5 % of 160 \(up to 2 %") as told:
        look_through(str(photos), None, tmp_path, strict=False)
    commands = str(told.value).splitlines()[-2:]
    assert commands[0].strip() == f"simgrad datasets {photos} --fix"
    assert commands[1].strip() == f"simgrad choose {photos} --skip {photos / 'skip.json'}"
    assert not (tmp_path / LIST).exists()


def test_strict_refuses_one(photos: Path, tmp_path: Path) -> None:
    spoil(photos, missing=0, broken=1)
    with pytest.raises(InputError, match=r"1 broken picture, 0\.6 % of 160 .`strict`"):
        look_through(str(photos), None, tmp_path, strict=True)


def copy_across(photos: Path) -> tuple[str, str]:
    """A copy of a test picture, called so that it is trained on."""
    tested = next(f.name for f in (photos / "images").iterdir() if hashed_split(f.name) == "test")
    copy = next(n for n in (f"copy{i}.jpg" for i in range(99)) if hashed_split(n) == "train")
    shutil.copy(photos / "images" / tested, photos / "images" / copy)
    with (photos / "captions.txt").open("a") as file:
        file.write(f"{copy}\tthe same again\n")
    return tested, copy


def test_copies_lie_on_one_side_of_splits_that_we_drew(photos: Path, tmp_path: Path) -> None:
    tested, copy = copy_across(photos)
    looked = look_through(str(photos), None, tmp_path, strict=True)  # nothing is lost
    assert looked.omitted == f"1 of another split a second time ({copy})"
    assert tested in looked.dataset.split("test").image_names
    assert copy not in looked.dataset.split("train").image_names


def test_what_was_skipped_before_stays_skipped(photos: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    entry = {"file": "", "place": "", "split": hashed_split("0100.jpg"), "image": "0100.jpg"}
    own.write_text(json.dumps({"skip": [entry]}))
    (lost,) = spoil(photos, missing=1, broken=0)
    looked = look_through(str(photos), str(own), tmp_path, strict=False)
    held = {name for split in looked.dataset.splits.values() for name in split.image_names}
    assert len(held) == COUNT - 2
    assert not held & {"0100.jpg", lost}


def test_a_line_that_cannot_be_read_is_left_out_too(photos: Path, tmp_path: Path) -> None:
    with (photos / "captions.txt").open("ab") as file:
        file.write(b"0001.jpg\t\xff\xfe bad\n")
    looked = look_through(str(photos), None, tmp_path, strict=False)
    assert looked.omitted == f"1 unreadable record (captions.txt, line {COUNT + 1})"


def test_what_features_were_computed_without_is_said_again(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    spoil(photos, missing=2, broken=1)
    looked = look_through(str(photos), None, tmp_path, strict=False)
    skip = json.loads((tmp_path / LIST).read_text())["skip"]
    features, folder = tmp_path / "features", tmp_path / "choice"
    features.mkdir()
    folder.mkdir()
    write_checked(features / "features.json", {"skip": skip, "splits": {}})
    assert left_out_before("~/features", folder) == looked.omitted  # as open_dataset takes it
    assert json.loads((folder / LIST).read_text())["skip"] == skip
    write_checked(features / "features.json", {"splits": {}})
    (folder / LIST).unlink()
    assert left_out_before(str(features), folder) == ""
    assert not (folder / LIST).exists()
