"""What is computed from data: checked when it is read, made anew when it does not fit."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.cli.program import main
from simgrad.core import console
from simgrad.core.derived import kept_array
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.runs.features import cached_features, compute

from . import layout_writers as write
from .test_features import Stopped, StopsAt, job, nothing, tiny

OPTIONS = ("--backbone", "random:efficientnet-lite0", "--device", "cpu", "--size", "32")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))


def simgrad(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


def features(data: Path, folder: Path, *more: str) -> int:
    return simgrad("features", str(data), *OPTIONS, "--output", str(folder), *more)


DAMAGES = {
    "zeros": lambda file: _edit(file, lambda array: array * 0),
    "one value": lambda file: _edit(file, _one_value),
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:-100]),
    "empty": lambda file: file.write_bytes(b""),
    "another shape": lambda file: np.save(file, np.load(file)[:-1]),
}


def _edit(file: Path, change: Any) -> None:
    np.save(file, change(np.load(file)))


def _one_value(array: Any) -> Any:
    array.reshape(-1)[7] += 1
    return array


@pytest.mark.parametrize("damage", DAMAGES)
def test_kept_features_of_scenes_are_made_anew(damage: str, tmp_path: Path) -> None:
    spec = "scenes(train=12, val=0, test=0, features=global)"

    def rows() -> Any:
        found = open_dataset(spec).split("train").features
        assert found is not None
        return found.rows(np.arange(12))

    right = rows()
    (file,) = (tmp_path / "cache" / "scenes").glob("*.npy")
    DAMAGES[damage](file)
    assert np.array_equal(rows(), right)
    assert np.array_equal(np.load(file), right.astype(np.float16))  # and kept again


@pytest.mark.parametrize("damage", DAMAGES)
def test_kept_features_of_a_network_are_made_anew(damage: str, tmp_path: Path) -> None:
    split = open_dataset(write.karpathy(tmp_path / "data")).split("train")
    rows = np.arange(3)
    right = cached_features(split, tiny(), device="cpu").rows(rows)
    (file,) = (tmp_path / "cache" / "features").glob("*.npy")
    DAMAGES[damage](file)
    assert np.array_equal(cached_features(split, tiny(), device="cpu").rows(rows), right)


def test_kept_features_follow_the_pictures_not_their_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write.karpathy(tmp_path / name)
        cached_features(open_dataset(tmp_path / name).split("train"), tiny(), device="cpu")
    kept = tmp_path / "cache" / "features"
    assert len(list(kept.glob("*.npy"))) == 1
    (tmp_path / "two" / "images" / "a.jpg").write_bytes(write.picture_bytes("another"))
    changed = cached_features(open_dataset(tmp_path / "two").split("train"), tiny(), device="cpu")
    right = cached_features(open_dataset(tmp_path / "one").split("train"), tiny(), device="cpu")
    assert len(list(kept.glob("*.npy"))) == 2
    assert not np.array_equal(changed.rows(np.arange(1)), right.rows(np.arange(1)))


@pytest.mark.parametrize("damage", [None, *DAMAGES])
def test_an_array_is_made_once_of_one_thing(damage: str | None, tmp_path: Path) -> None:
    written = []

    def write(path: Path) -> None:
        written.append(path)
        np.save(path, np.full((200, 3), len(written)))

    def made(of: str) -> int:
        return int(kept_array(tmp_path / "a.npy", {"of": of}, write)[0, 0])

    assert [made("this"), made("this"), made("that"), made("that")] == [1, 1, 2, 2]
    if damage is not None:
        DAMAGES[damage](tmp_path / "a.npy")
        assert [made("that"), made("that")] == [3, 3]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_features_folder_is_checked_and_made_anew(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = write.karpathy(tmp_path / "data"), tmp_path / "features"
    assert features(data, folder) == 0
    right = np.load(folder / "train.npy")
    DAMAGES[damage](folder / "train.npy")
    with pytest.raises(InputError, match=r"train\.npy"):
        open_dataset(data, features=folder)
    assert features(data, folder) == 0
    assert np.array_equal(np.load(folder / "train.npy"), right)
    open_dataset(data, features=folder)


def test_features_of_pictures_that_changed_are_refused_and_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = write.karpathy(tmp_path / "data"), tmp_path / "features"
    assert features(data, folder) == 0
    before = {name: np.load(folder / f"{name}.npy") for name in ("train", "val")}
    (data / "images" / "a.jpg").write_bytes(write.picture_bytes("other"))
    with pytest.raises(InputError, match=r"split 'train'.*computed from.*simgrad features"):
        open_dataset(data, features=folder)
    assert features(data, folder) == 0
    assert not np.array_equal(np.load(folder / "train.npy"), before["train"])
    assert np.array_equal(np.load(folder / "val.npy"), before["val"])
    open_dataset(data, features=folder)


def test_a_full_run_replaces_a_try_and_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = write.karpathy(tmp_path / "data"), tmp_path / "features"
    assert features(data, folder, "--limit", "1", "--grid", "1") == 0
    with pytest.raises(InputError, match="`limit`"):
        open_dataset(data, features=folder)
    assert features(data, folder) == 0  # other settings, too: it was only a try
    assert open_dataset(data, features=folder).split("train").features is not None
    capsys.readouterr()
    assert features(data, folder) == 0
    assert "–" in capsys.readouterr().out  # nothing left to compute
    assert features(data, folder, "--half") == 2
    assert "other settings" in capsys.readouterr().err


def test_what_was_skipped_is_remembered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder = write.karpathy(tmp_path / "data"), tmp_path / "features"
    (data / "images" / "b.jpg").unlink()
    (data / "images" / "c.jpg").write_bytes(b"no picture")
    assert features(data, folder) == 2
    told = capsys.readouterr().err
    assert "b.jpg" in told
    assert "--fix" in told
    assert "--skip" in told
    assert simgrad("datasets", str(data), "--fix") == 0
    skip = data / "skip.json"
    assert features(data, folder, "--skip", str(skip)) == 0
    skip.unlink()
    for dataset in (open_dataset(data, features=folder), open_dataset(folder)):
        assert list(dataset.split("train").image_names) == ["a.jpg"]
        assert dataset.split("val").num_images == 1
    assert json.loads((folder / "features.json").read_text())["skip"]


def test_a_picture_that_cannot_be_decoded_names_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write.karpathy(tmp_path / "data")
    (data / "images" / "c.jpg").write_bytes(b"no picture")
    assert features(data, tmp_path / "features") == 2
    told = capsys.readouterr().err
    assert all(word in told for word in ("c.jpg", "--fix", "--skip"))


def test_a_log_gets_a_line_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write.karpathy(tmp_path / "data")
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    assert features(data, tmp_path / "features", "--batch", "1") == 0
    assert ": 2 of 3, " in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_in_features_is_noticed_or_harmless(
    seed: int, kept: Path, tmp_path: Path
) -> None:
    """In any file of the folder: refused, or the same features come out."""
    folder = shutil.copytree(kept / "features", tmp_path / "features")
    random = np.random.default_rng(seed)
    file = random.choice(np.array(sorted(folder.iterdir()), dtype=object))
    data = bytearray(file.read_bytes())
    data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
    file.write_bytes(bytes(data))
    with contextlib.suppress(InputError):
        dataset = open_dataset(kept / "data", features=folder)
        right = open_dataset(kept / "data", features=kept / "features")
        for name, split in dataset.splits.items():
            known = right.split(name)
            rows = np.arange(split.num_images)
            assert list(split.captions) == list(known.captions)
            assert split.features is not None
            assert known.features is not None
            assert np.array_equal(split.features.rows(rows), known.features.rows(rows))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    write.karpathy(folder / "data")
    assert features(folder / "data", folder / "features") == 0
    return folder


@pytest.mark.parametrize("what", ["marker", "rows"])
def test_a_flipped_bit_in_a_run_that_was_stopped(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simgrad.runs.features._SAVE_EVERY", 0.0)
    split = open_dataset("scenes(train=23, val=0, test=0, size=32)").split("train")
    compute(split, job(), tmp_path / "whole.npy", report=nothing)
    broken = dataclasses.replace(split, pictures=StopsAt(split.pictures, 9))
    target = tmp_path / "train.npy"
    with pytest.raises(Stopped):
        compute(broken, job(), target, report=nothing)
    file = next(tmp_path.glob(".train*.json" if what == "marker" else ".train*.partial"))
    data = bytearray(file.read_bytes())
    place = data.index(b'"rows": 8') + 8 if what == "marker" else 200
    data[place] ^= 1
    file.write_bytes(bytes(data))
    assert compute(split, job(), target, report=nothing) == 23
    assert target.read_bytes() == (tmp_path / "whole.npy").read_bytes()
