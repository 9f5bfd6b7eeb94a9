"""Ranks and test metrics that were damaged on their way are noticed, and the file is named."""

import json

import numpy as np
import pyarrow.parquet
import pytest

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks
from simgrad.runs.run import RANKS, TEST, read_test, write_test


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    similarities = random.normal(size=(20, 60)).astype(np.float32)
    found = simgrad.evaluate_similarities(
        similarities, np.arange(60) // 3, image_ids=[f"picture {i}.jpg" for i in range(20)]
    )
    write_test(tmp_path, found)
    return tmp_path


def same(first, second):
    return all(np.array_equal(getattr(first, k), getattr(second, k)) for k in vars(first)
               if k != "positions")  # fmt: skip


@pytest.mark.parametrize("name", [RANKS, TEST])
def test_a_flipped_bit_is_noticed_or_harmless(folder, name):
    path = folder / name
    whole, read = path.read_bytes(), Ranks.load if name == RANKS else read_test
    before = read(path)
    random = np.random.default_rng(1)
    told = []
    for place in random.choice(len(whole), 150, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            after = read(path)
        except InputError as error:
            told.append(str(error))
        else:
            equal = same(before, after) if name == RANKS else _numbers(after) == before
            assert equal, (place, after)
    assert len(told) > 50
    assert all(name in text for text in told)


def _numbers(found):
    """Without the checksum, where its own name is what was damaged."""
    return {k: v for k, v in found.items() if len(k) != len("checksum") or "_" in k}


def change(folder, **columns):
    """Write other values into the file, as a program would that knows of no checksum."""
    table = pyarrow.parquet.read_table(folder / RANKS)
    for name, (row, value) in columns.items():
        values = table[name].to_pylist()
        values[row] = value
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, [pyarrow.array(values, table[name].type)])
    pyarrow.parquet.write_table(table.replace_schema_metadata(None), folder / RANKS)
    return Ranks.load(folder / RANKS)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"t2i": (3, 21)}, "row 3: damaged: rank 21 in 't2i' of a list of 20"),
        ({"t2i": (3, 0)}, "rank 0 in 't2i'"),
        ({"i2t": (5, 61)}, "rank 61 in 'i2t' of a list of 60"),
        ({"i2t": (5, -1)}, "rank -1 in 'i2t'"),
        ({"image": (0, 99)}, "does not number them"),
        ({"fold": (4, 1)}, "captions of one image differ in 'fold'"),
        ({"image_id": (4, "other.jpg")}, "differ in 'image_id'"),
    ],
)
def test_ranks_that_no_ranking_can_have(folder, columns, message):
    with pytest.raises(InputError, match=message) as told:
        change(folder, **columns)
    assert str(folder / RANKS) in str(told.value)


def test_two_captions_of_an_image_cannot_stand_in_one_place(folder):
    other = Ranks.load(folder / RANKS).caption_rank[1]
    with pytest.raises(InputError, match="the same rank"):
        change(folder, i2t=(0, int(other)))


def test_a_changed_number_is_noticed(folder):
    values = json.loads((folder / TEST).read_text())
    assert read_test(folder / TEST)["rsum"] == values["rsum"]
    (folder / TEST).write_text(json.dumps({**values, "rsum": values["rsum"] + 1}))
    with pytest.raises(InputError, match=r"test\.json: damaged"):
        read_test(folder / TEST)
    del values["checksum"]  # of an earlier version
    (folder / TEST).write_text(json.dumps(values))
    assert read_test(folder / TEST) == values
