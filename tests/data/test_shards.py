"""Shards, tar and Parquet: what is kept of them, when it is read again, and what comes of it."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from simgrad.core import derived
from simgrad.core.errors import InputError
from simgrad.core.parquet import has_columns
from simgrad.data import Sampler, Source, Vocabulary, open_dataset
from simgrad.data.base import Dataset
from simgrad.data.layouts import parquet, webdataset
from simgrad.data.log import Log
from simgrad.data.opening import open_logged
from tests.data import layout_writers as write


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep an index of files that were written just now, in a cache of this test's own."""
    monkeypatch.setattr(derived, "_FRESH", -1.0)
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))


def parquet_shards(folder: Path, group: int = 2) -> Path:
    """The small world, a caption a row, in row groups of two."""
    arrow, table = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir(parents=True)
    for split, images in write.WORLD.items():
        rows = [(name, caption) for name, captions in images.items() for caption in captions]
        columns = {
            "image": [{"bytes": write.picture_bytes(name), "path": name} for name, _ in rows],
            "filename": [name for name, _ in rows],
            "caption": [caption for _, caption in rows],
        }
        file = folder / f"{split}-00000-of-00001.parquet"
        table.write_table(arrow.table(columns), file, row_group_size=group)
    return folder


WRITERS = {"webdataset": write.webdataset, "parquet": parquet_shards}
LAYOUTS = pytest.mark.parametrize("layout", WRITERS)


def held(dataset: Dataset) -> list[object]:
    """All that a data set says."""
    found: list[object] = [dataset.notes, dataset.layout]
    for split in dataset.splits.values():
        assert split.pictures is not None
        assert split.caption_ids is not None
        assert split.caption_places is not None
        found += [split.name, list(split.captions), list(split.image_names)]
        found += [
            list(split.caption_ids),
            split.image_of_caption.tolist(),
            split.pictures.content(),
        ]
        found += [split.caption_places(row) for row in range(split.num_captions)]
        found += [np.asarray(split.pictures.picture(i)).tolist() for i in range(split.num_images)]
    return found


def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no header of a shard can be read."""

    def refuse(*_: object) -> None:
        raise AssertionError("the shards were read again")

    monkeypatch.setattr(webdataset, "_samples", refuse)
    monkeypatch.setattr(parquet, "_samples", refuse)


@LAYOUTS
def test_opened_again_without_reading(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WRITERS[layout](tmp_path / "data")
    first = open_dataset(folder)
    assert first.layout == layout
    before = held(first)
    no_reading(monkeypatch)
    assert held(open_dataset(folder)) == before
    assert open_dataset(folder).fingerprint() == first.fingerprint()


def test_parquet_world(tmp_path: Path) -> None:
    """Rows of one name are one image; pictures are the ones that were written."""
    dataset = open_dataset(parquet_shards(tmp_path / "data"))
    for name, images in write.WORLD.items():
        split = dataset.split(name)
        assert split.pictures is not None
        assert list(split.image_names) == list(images)
        for row, image in enumerate(split.image_names):
            assert [split.captions[i] for i in split.captions_of(row)] == images[image]
            middle = np.asarray(split.pictures.picture(row))[4, 6].astype(int)
            assert np.abs(middle - write.colour(image)).max() < 8


def test_parquet_rows_of_an_image_that_are_apart(tmp_path: Path) -> None:
    arrow, table = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = ["a.jpg", "b.jpg", "a.jpg"]
    columns = {
        "jpg": [write.picture_bytes("a.jpg")] * 3,
        "filename": names,
        "text": ["1", "2", "3"],
    }
    table.write_table(arrow.table(columns), tmp_path / "train.parquet")
    split = open_dataset(tmp_path / "train.parquet").split("train")
    assert list(split.image_names) == ["a.jpg", "b.jpg"]
    assert [list(split.captions), split.image_of_caption.tolist()] == [["1", "3", "2"], [0, 0, 1]]
    assert split.caption_ids is not None
    assert list(split.caption_ids) == ["a.jpg#0", "a.jpg#1", "b.jpg#0"]
    assert split.caption_places is not None
    assert split.caption_places(1).endswith("train.parquet, sample 2")


def test_what_the_package_datasets_writes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    images = list(write.WORLD["train"])
    rows = {
        "image": [{"bytes": write.picture_bytes(name), "path": None} for name in images],
        "captions": [write.WORLD["train"][name] for name in images],
    }
    kinds = {"image": datasets.Image(), "captions": datasets.List(datasets.Value("string"))}
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    (tmp_path / "data").mkdir()
    made.to_parquet(tmp_path / "data" / "train-00000-of-00001.parquet")
    split = open_dataset(tmp_path).split("train")
    assert [split.captions[i] for i in split.captions_of(1)] == write.WORLD["train"][images[1]]


@LAYOUTS
def test_a_resumed_epoch_gives_the_same_batches(layout: str, tmp_path: Path) -> None:
    """Opened for the first time, and opened again in the middle of the epoch."""
    folder = WRITERS[layout](tmp_path / "data")
    batches = []
    for done in (0, 1):
        split = open_dataset(folder).split("train")
        words = Vocabulary.build(split.captions, min_count=1)

        def pixels(picture: object, _: object) -> torch.Tensor:
            return torch.from_numpy(np.asarray(picture).copy())

        source = Source(split, words, transform=pixels)
        epoch = Sampler(batch=2, seed=3).epoch(split, 5)
        batches.append(list(source.batches(epoch[done:])))
    assert len(batches[1]) > 0
    for one, other in zip(batches[0][1:], batches[1], strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.tokens, other.tokens)
        assert np.array_equal(one.index.captions, other.index.captions)


def test_a_changed_shard_is_read_again(tmp_path: Path) -> None:
    folder = write.webdataset(tmp_path / "data")
    before = list(open_dataset(folder).split("train").captions)
    with tarfile.open(folder / "train-0000.tar", "a") as archive:
        write.add_member(archive, "new.jpg", write.picture_bytes("a.jpg"))
        write.add_member(archive, "new.txt", b"a new caption")
    assert "a new caption" in open_dataset(folder).split("train").captions
    os.remove(folder / "train-0000.tar")
    assert len(open_dataset(folder).split("train").captions) < len(before)


@pytest.mark.parametrize("how", ["flipped", "cut off", "gone", "no JSON"])
def test_a_damaged_index_is_made_again(how: str, tmp_path: Path) -> None:
    folder = write.webdataset(tmp_path / "data")
    before = held(open_dataset(folder))
    (file,) = (tmp_path / "cache" / "shards").glob("*/train.captions.npy")
    data = bytearray(file.read_bytes())
    if how == "flipped":
        data[-2] ^= 1
        file.write_bytes(data)
    elif how == "cut off":
        file.write_bytes(data[:-4])
    elif how == "gone":
        file.unlink()
    else:
        (file.parent / "index.json").write_text("{")
    assert held(open_dataset(folder)) == before
    assert file.exists()


def test_problems_are_found_in_shards_that_have_an_index(tmp_path: Path) -> None:
    """An index is of shards without problems; one with a skip list is another."""
    folder = write.webdataset(tmp_path / "data")
    with tarfile.open(folder / "train-0000.tar", "a") as archive:
        write.add_member(archive, "lonely.jpg", write.picture_bytes("a.jpg"))
    with pytest.raises(InputError, match=r"train-0000\.tar, member lonely: no \.txt or \.json"):
        open_dataset(folder)
    log = Log(collect=True)
    open_logged(folder, log)
    (tmp_path / "skip.json").write_text("")
    log.write(tmp_path / "skip.json", log.problems)
    for _ in range(2):
        assert (
            "lonely"
            not in open_dataset(folder, skip=tmp_path / "skip.json").split("train").image_names
        )
    with pytest.raises(InputError, match="member lonely"):
        open_dataset(folder)


@LAYOUTS
def test_without_a_place_to_keep_it(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WRITERS[layout](tmp_path / "data")
    before = held(open_dataset(folder))
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "file"))
    assert held(open_dataset(folder)) == before


def test_published_keeps_five_captions(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "test-0.tar", "w") as archive:
        for name, count in (("a", 7), ("b", 2)):
            write.add_member(archive, f"{name}.jpg", write.picture_bytes("a.jpg"))
            text = "\n".join(f"{name} {i}" for i in range(count))
            write.add_member(archive, f"{name}.txt", text.encode())
    split = open_dataset(tmp_path, published=True).split("test")
    assert list(split.captions) == [*(f"a {i}" for i in range(5)), "b 0", "b 1"]
    assert split.image_of_caption.tolist() == [0] * 5 + [1] * 2
    assert split.caption_ids is not None
    assert split.caption_ids[5] == "b#0"


def test_a_damaged_parquet_shard_is_named(tmp_path: Path) -> None:
    folder = parquet_shards(tmp_path / "data")
    (folder / "val-00000-of-00001.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(InputError, match=r"val-00000-of-00001\.parquet: not a table"):
        open_dataset(folder)


def test_names_of_columns_that_are_no_text(tmp_path: Path) -> None:
    arrow, table = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    columns = arrow.table({"vectorsx": [[1.0]] * 3, "text": ["a"] * 3})
    table.write_table(columns, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"vectorsx", b"vec\xff\xfeors"))
    with pytest.raises(InputError, match=r"table\.parquet: .*utf-8"):
        open_dataset(path)
    assert not has_columns(path, ["text"])


MEASURE = """
import json, sys, time
import simgrad, torch, simgrad.data
from simgrad.data import open_dataset
memory = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
open_dataset("scenes(train=2, val=1, test=1)")
before, begun = memory(), time.perf_counter()
dataset = open_dataset(sys.argv[1])
took = time.perf_counter() - begun
split = dataset.split("train")
told = split.captions[-1], split.image_names[-1]
print(json.dumps([took, memory() - before, split.num_images, *told]))
"""


@pytest.mark.slow
def test_a_million_pairs_open_again_in_two_seconds(tmp_path: Path) -> None:
    """And in 200 MB; in a process of its own, after the one that read the shards."""
    write.many_shards(tmp_path / "data", 1_000_000, 10_000)
    again = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(tmp_path / "data")],
            capture_output=True, text=True, check=True, timeout=3600,
        )  # fmt: skip
        again.append(json.loads(done.stdout))
    seconds, memory, images, _, name = again[-1]
    assert (images, name) == (980_000, "00999999")
    assert seconds < 2
    assert memory < 200
