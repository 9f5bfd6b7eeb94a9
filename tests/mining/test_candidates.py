"""Candidate lists: what they were made from, damage, other data, and AOQ's own files."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.cli.mine import mine as command
from simgrad.core.errors import InputError
from simgrad.data import Split, open_dataset
from simgrad.data.candidates import (
    Candidates,
    open_candidates,
    read_candidates,
    write_candidates,
)
from simgrad.training import train
from simgrad.training.rounds import mine_run
from tests.data import layout_writers as write

FIXTURES = Path(__file__).parents[1] / "fixtures"
WORLD = "scenes(train=8, val=2, test=2, features=global)"


def split() -> Split:
    return open_dataset(WORLD).split("train")


def lists(of: Split, depth: int = 4) -> Candidates:
    """Every image with captions of the next ones, and the other way round."""
    n, own = of.num_images, of.image_of_caption
    i2t = [[(5 * (i + 1) + k) % of.num_captions for k in range(depth)] for i in range(n)]
    t2i = [[(own[c] + 1 + k) % n for k in range(depth)] for c in range(of.num_captions)]
    return Candidates(np.array(i2t, np.int32), np.array(t2i, np.int32), {"weights": "x"})


def test_lists_come_back_with_what_they_were_made_from(tmp_path: Path) -> None:
    made = lists(split())
    made.save(tmp_path)
    back = Candidates.load(tmp_path)
    back.check(split())
    assert np.array_equal(back.i2t, made.i2t)
    assert np.array_equal(back.t2i, made.t2i)
    assert (back.info["weights"], back.info["images"], back.info["captions"]) == ("x", 8, 40)


@pytest.mark.parametrize("wrong", [-5, -2, 40, 2**31 - 1])
def test_numbers_out_of_range_are_refused(wrong: int) -> None:
    made = lists(split())
    made.i2t[3, 2] = wrong
    with pytest.raises(InputError, match="i2t, row 3: a candidate outside the 40"):
        made.check(split())


def test_a_query_s_own_pair_is_refused() -> None:
    made = lists(split())
    made.t2i[11, 0] = 2
    with pytest.raises(InputError, match="t2i, row 11: a candidate of its own pair"):
        made.check(split())


def test_lists_of_other_data_are_refused() -> None:
    with pytest.raises(InputError, match="lists for 8 images and 40 captions"):
        lists(split()).check(open_dataset(WORLD).split("test"))


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    lists(split()).save(tmp_path / "whole")
    info = Candidates.load(tmp_path / "whole").info
    random = np.random.default_rng(0)
    for name in ("i2t.npy", "t2i.npy", "candidates.json"):
        for _ in range(30):
            shutil.copytree(tmp_path / "whole", tmp_path / "damaged", dirs_exist_ok=True)
            path = tmp_path / "damaged" / name
            content = bytearray(path.read_bytes())
            content[random.integers(len(content))] ^= 1 << random.integers(8)
            path.write_bytes(content)
            try:
                found = Candidates.load(tmp_path / "damaged").info
            except InputError:
                continue
            assert {k: v for k, v in found.items() if k in info} == info, name


def test_damaged_lists_and_lists_of_other_data_are_mined_again(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    run = train(small(epochs=1), tmp_path / "run", dataset=scenes, quiet=True)
    folder = mine_run(run, tmp_path / "lists", 15, dataset=scenes)
    whole = (folder / "i2t.npy").read_bytes()
    (folder / "i2t.npy").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    recipe = small(objective="off-tri", candidates=str(folder), depth=15, epochs=1)
    with pytest.raises(InputError, match="damaged since it was mined"):
        train(recipe, tmp_path / "second", dataset=scenes, quiet=True)
    mine_run(run, folder, 15, dataset=scenes)
    assert (folder / "i2t.npy").read_bytes() == whole
    other = open_dataset("scenes(train=60, val=20, test=20, features=global, seed=1)")
    with pytest.raises(InputError, match=r"made with other data.*mine again"):
        train(recipe, tmp_path / "third", dataset=other, quiet=True)
    mine_run(run, folder, 15, dataset=other)
    assert train(recipe, tmp_path / "third", dataset=other, quiet=True).finished


def test_lists_of_an_earlier_version_are_read() -> None:
    found = Candidates.load(FIXTURES / "candidates-71b75c7")
    found.check(open_dataset("scenes(train=24, val=6, test=8, features=global)").split("train"))
    assert found.info["depth"] == 300


# -- AOQ's files


def test_aoq_s_layout(tmp_path: Path) -> None:
    train_split = open_dataset(write.precomp(tmp_path / "coco_precomp")).split("train")
    i2t = np.array([[5, 6, 19], [0, 1, 2], [0, 3, 4], [1, 2, 3]], np.int32)
    t2i = np.array([[(i // 5 + 1 + k) % 4 for k in range(2)] for i in range(20)], np.int32)
    tag, folder = "coco", tmp_path / "offlinecandidates"
    write_candidates(folder, tag, Candidates(i2t, t2i, {}), train_split.image_of_caption)
    assert sorted(file.name for file in folder.iterdir()) == ["i2t_coco.npy", "t2i_coco.npy"]
    assert np.load(folder / "i2t_coco.npy").dtype == np.int32
    found = read_candidates(folder, tag)
    found.check(train_split)
    np.testing.assert_array_equal(found.i2t, i2t)
    np.testing.assert_array_equal(found.t2i, t2i)
    assert isinstance(found.i2t, np.memmap)
    with pytest.raises(InputError, match=r"i2t_coco\.npy: lists for 4 images"):
        read_candidates(folder, "coco").check(split())
    with pytest.raises(InputError, match="no such file"):
        read_candidates(folder, "f30k")


def test_what_filters_left_of_a_list_is_repeated_for_aoq(tmp_path: Path) -> None:
    """Its loader would take -1 for the last item."""
    made, of = lists(split()), split()
    made.i2t[0, 2:] = -1
    made.i2t[1] = -1
    made.t2i[7, 1:] = -1
    made.t2i[8] = -1
    write_candidates(tmp_path, "own", made, of.image_of_caption)
    found = read_candidates(tmp_path, "own")
    found.check(of)
    assert found.i2t.min() >= 0
    assert found.t2i.min() >= 0
    assert found.i2t[0].tolist() == [5, 6, 5, 6]
    assert found.t2i[7].tolist() == [made.t2i[7, 0]] * 4
    assert np.array_equal(found.i2t[2:], made.i2t[2:])
    assert not (of.image_of_caption[found.i2t[1]] == 1).any()
    assert not (found.t2i[8] == of.image_of_caption[8]).any()


def test_which_lists_a_folder_holds(tmp_path: Path) -> None:
    for tag in ("a", "b"):
        write_candidates(tmp_path / tag, tag, lists(split()), split().image_of_caption)
        write_candidates(tmp_path / "both", tag, lists(split()), split().image_of_caption)
    assert open_candidates(tmp_path / "a").info["tag"] == "a"
    with pytest.raises(InputError, match="several data sets"):
        open_candidates(tmp_path / "both")
    assert open_candidates(tmp_path / "both" / "i2t_b.npy").info["tag"] == "b"
    with pytest.raises(InputError, match="simgrad mine"):
        open_candidates(tmp_path)


def test_mined_filtered_written_for_aoq_and_trained_on(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    run = train(small(epochs=1), tmp_path / "run", dataset=scenes, quiet=True)
    with pytest.raises(InputError, match="--aoq other/mine"):  # and nothing is written for it
        command(str(run.path), output=str(tmp_path / "own"), depth=15, aoq="other/mine")
    assert not (tmp_path / "own").exists()
    command(str(run.path), output=str(tmp_path / "own"), depth=15, truth=True, aoq="mine")
    assert (np.load(tmp_path / "own" / "i2t.npy") < 0).any()  # ours say where a filter was
    aoq = tmp_path / "aoq"
    aoq.mkdir()
    for name in ("i2t_mine.npy", "t2i_mine.npy"):
        shutil.copy(tmp_path / "own" / name, aoq / name)
    recipe = small(objective="off-quin", candidates=str(aoq), depth=15, epochs=1)
    assert train(recipe, tmp_path / "second", dataset=scenes, quiet=True).finished
