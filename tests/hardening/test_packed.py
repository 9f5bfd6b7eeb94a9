"""Files that unpack to far more than they hold, and what is no plain file."""

import os
import struct
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from simgrad.analysis.diagrams import read_triplets
from simgrad.core import files
from simgrad.core.errors import InputError
from simgrad.core.files import open_array, read_json, read_npz
from simgrad.core.parquet import read_parquet
from simgrad.data import open_dataset, read_published
from simgrad.data.array_files import read_arrays
from simgrad.data.candidates import read_candidates
from simgrad.evaluation.ranks import Ranks
from tests.hardening.memory import at_most


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if memory ended at a mebibyte."""
    monkeypatch.setattr(files, "_UNPACKED", 1 << 20)


@pytest.mark.usefixtures("small_limit")
def test_an_archive_of_zeros_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "triplets.npz"
    np.savez_compressed(path, early=np.zeros((1 << 18, 2)), images=np.ones(3))
    assert path.stat().st_size < 20_000
    for read in (read_npz, read_arrays, lambda file: read_triplets(file.parent)):
        with pytest.raises(InputError, match=r"triplets\.npz.*unpack to"):
            read(path)
    random = np.random.default_rng(0).random((1 << 18, 2))  # as large, and honestly so
    np.savez_compressed(path, early=random)
    assert np.array_equal(read_npz(path)["early"], random)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_whose_directory_lies(method: int, tmp_path: Path) -> None:
    """800 MB, told as 1,000 bytes, were unpacked before they were refused."""
    path, mebibytes = tmp_path / "x.npz", 300
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("a.npy", "w") as member:
        told = {"descr": "<f8", "fortran_order": False, "shape": (mebibytes << 17,)}
        np.lib.format.write_array_header_1_0(member, told)
        for _ in range(mebibytes):
            member.write(bytes(1 << 20))
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, 1000)
    path.write_bytes(data)
    with at_most(64), pytest.raises(InputError, match=r"x\.npz: not a readable"):
        read_npz(path)


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("column", ["numbers", "texts"])
def test_a_table_of_one_value_is_not_unpacked(column: str, tmp_path: Path) -> None:
    path = tmp_path / "captions.parquet"
    value = 0 if column == "numbers" else "word " * 1000
    rows = 1 << 18 if column == "numbers" else 1 << 12
    parquet.write_table(arrow.table({"image": ["a.jpg"] * rows, "caption": [value] * rows}), path)
    assert path.stat().st_size < 50_000
    for read in (read_arrays, open_dataset):
        with pytest.raises(InputError, match=r"captions\.parquet.*unpack to"):
            read(path)


def test_columns_come_as_they_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    made = arrow.table({"b": list(range(10_000)), "a": ["x"] * 10_000, "c": [[1.0, 2.0]] * 10_000})
    parquet.write_table(made, path, row_group_size=3000)
    assert read_parquet(path).equals(made)
    assert read_parquet(path, ["c", "b"]).equals(made.select(["b", "c"]))
    parquet.write_table(made.slice(0, 0), path)
    assert read_parquet(path, ["a"]).num_rows == 0
    twice = arrow.Table.from_arrays([made["a"], made["b"]], names=["a", "a"])
    parquet.write_table(twice, path)
    with pytest.raises(InputError, match="same name"):
        read_arrays(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("x.json", read_json),
        ("x.npy", open_array),
        ("x.npz", read_arrays),
        ("v.json", read_published),
        ("v.pkl", read_published),
        ("i2t_a.npy", lambda path: read_candidates(path.parent, "a")),
        ("ranks.parquet", Ranks.load),
        ("captions.txt", lambda path: open_dataset(path.parent)),
        ("captions.csv", lambda path: open_dataset(path.parent)),
        ("train_caps.txt", lambda path: open_dataset(path.parent)),
        ("dataset_coco.json", lambda path: open_dataset(path.parent)),
        ("captions_val2014.json", lambda path: open_dataset(path.parent)),
        ("train-000.tar", lambda path: open_dataset(path.parent)),
    ],
)
def test_a_pipe_is_refused_and_not_waited_for(name: str, read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    os.mkfifo(tmp_path / name)
    found: list[object] = []

    def attempt() -> None:
        try:
            found.append(read(tmp_path / name))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(60)
    assert found, "still waiting for somebody to write"
    assert isinstance(found[0], InputError), found


def test_a_shard_that_promises_a_terabyte(tmp_path: Path) -> None:
    """Nothing is allocated for what is not there."""
    member = tarfile.TarInfo("a.txt")
    member.size = 1 << 40
    (tmp_path / "train-000.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + b"a red dog")
    with pytest.raises(InputError, match=r"train-000\.tar|no known layout|no captions"):
        open_dataset(tmp_path)
