"""Found pairs: the file, and what training, mining and evaluation make of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.cli.mine import mine as command
from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import Split
from simgrad.data.candidates import Candidates
from simgrad.data.found import ANSWERS, FOUND, Pair, caption_names, read_found, rows_of, write_found
from simgrad.data.sampling import index_batch
from simgrad.runs.found_pairs import known_pairs, without_known
from simgrad.runs.recipe import Recipe
from simgrad.training import train

DATA = "scenes(train=30, val=6, test=8, features=global)"


def split_of(name: str = "train") -> Split:
    return open_dataset(DATA).split(name)


def pair(split: Split, image: int, caption: int, **told: Any) -> Pair:
    return Pair(
        split.image_names[image], caption_names(split)[caption], split.captions[caption], **told
    )


def write(folder: Path, split: Split) -> Path:
    """Image 0 and captions of image 1, 2, 3: yes, likely, unsure; a no, and an unlikely one."""
    captions = [int(split.captions_of(image)[0]) for image in (1, 2, 3, 4, 5)]
    found = [
        pair(split, 0, captions[0], probability=0.1),
        pair(split, 0, captions[1], probability=0.9),
        pair(split, 0, captions[2], probability=0.9),
        pair(split, 0, captions[3], probability=0.9),
        pair(split, 0, captions[4], probability=0.2),
    ]
    write_found(folder / FOUND, found)
    answers = [(0, "no"), (0, "yes"), (2, "unsure"), (3, "no")]
    lines = [
        json.dumps({"image": found[k].image, "caption": found[k].caption, "answer": answer})
        for k, answer in answers
    ]
    # A kill came while the last answer was written.
    (folder / ANSWERS).write_text("\n".join(lines) + '\n{"image": "x", "cap')
    return folder


def test_answers_count_before_probabilities(tmp_path: Path) -> None:
    split = split_of()
    rows = rows_of(read_found(write(tmp_path, split)), split)
    first = [int(split.captions_of(image)[0]) for image in (1, 2, 3)]
    assert rows.right.tolist() == [[0, first[0]], [0, first[1]]]
    assert rows.unsure.tolist() == [[0, first[2]]]
    strict = rows_of(read_found(tmp_path), split, sure=0.95)
    assert strict.right.tolist() == [[0, first[0]]]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "not JSON"),
        ('{"image": "a"}', "caption"),
        ('{"image": "a", "caption": "b", "answer": "maybe"}', "unsure"),
        ('{"image": "a", "caption": "b", "probability": 3}', "from 0 to 1"),
        ('{"image": 3, "caption": "b"}', "texts"),
    ],
)
def test_bad_lines_are_named(line: str, word: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"image": "a", "caption": "b"}\n' + line + "\n")
    with pytest.raises(InputError, match=f"line 2.*{word}"):
        read_found(file)


def test_pairs_of_other_data_are_refused(tmp_path: Path) -> None:
    split = split_of()
    wrong = Pair(split.image_names[0], caption_names(split)[9], "other words", 0.9)
    with pytest.raises(InputError, match="other data"):
        rows_of([wrong], split)
    with pytest.raises(InputError, match="false-negatives"):
        read_found(tmp_path / "nothing")


@pytest.mark.parametrize("found", ["ignore", "positive"])
def test_a_batch_is_told_of_its_found_pairs(found: str, tmp_path: Path) -> None:
    split = split_of()
    recipe = Recipe(data=DATA, found_pairs=str(write(tmp_path, split)), found=found)  # type: ignore[arg-type]
    known = known_pairs(recipe, split)
    assert known is not None
    captions = np.array([int(split.captions_of(image)[0]) for image in (3, 2, 0, 1)])
    told = known.within(index_batch(split, captions), torch.device("cpu"))
    # Image 0 stands at place 2; the captions of images 3, 2 and 1 at 0, 1 and 3.
    right, unsure = [[2, 1], [2, 3]], [[2, 0]]
    if found == "ignore":
        assert told.positive.tolist() == []
        assert told.ignored.tolist() == [[2, 0], [2, 1], [2, 3]]
    else:
        assert told.positive.tolist() == right
        assert told.ignored.tolist() == unsure
        mask, ignored = told.applied(torch.arange(4), 4)
        wanted = torch.eye(4, dtype=torch.bool)
        wanted[2, [1, 3]] = True
        assert torch.equal(mask, wanted)
        assert ignored is not None


def test_mined_lists_lose_what_was_found(tmp_path: Path) -> None:
    split = split_of()
    recipe = Recipe(data=DATA, found_pairs=str(write(tmp_path, split)))
    i2t = np.tile(np.arange(split.num_captions, dtype=np.int32), (split.num_images, 1))
    t2i = np.tile(np.arange(split.num_images, dtype=np.int32), (split.num_captions, 1))
    left = without_known(Candidates(i2t, t2i, {}), recipe, split)
    gone = {int(split.captions_of(image)[0]) for image in (1, 2, 3)}
    assert set(range(split.num_captions)) - set(left.i2t[0].tolist()) == gone
    for caption in gone:
        assert 0 not in left.t2i[caption].tolist()
    assert (left.i2t[1:] >= 0).all()


@pytest.mark.parametrize("found", ["ignore", "positive"])
def test_training_takes_the_file(found: str, small: Any, tmp_path: Path) -> None:
    dataset = open_dataset(DATA)
    split = dataset.split("train")
    write(tmp_path / "pairs", split)
    plain = small(epochs=1, data=DATA, objective="nt-xent")
    recipe = plain.replace(found_pairs=str(tmp_path / "pairs"), found=found)
    run = train(recipe, tmp_path / "run", dataset=dataset, quiet=True)
    other = train(plain, tmp_path / "plain", dataset=dataset, quiet=True)
    assert run.finished
    assert run.history[-1]["loss"] != other.history[-1]["loss"]
    with pytest.raises(InputError, match="one positive"):
        known_pairs(plain.replace(objective="off-tri", found_pairs=str(tmp_path / "pairs"),
                                  found="positive"), split)  # fmt: skip


def test_evaluation_by_the_file(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = open_dataset(DATA)
    train(small(epochs=1, data=DATA), tmp_path / "run", dataset=dataset, quiet=True)
    split = dataset.split("test")
    found = write(tmp_path / "pairs", split)
    output = tmp_path / "out.json"
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(tmp_path / "run"), "--truth", str(found), "--device", "cpu",
              "--output", str(output)])  # fmt: skip
    assert ended.value.code == 0, capsys.readouterr()
    assert "found_pairs" in output.read_text()


def test_mining_omits_found_pairs(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = open_dataset(DATA)
    split = dataset.split("train")
    run = train(small(epochs=1, data=DATA), tmp_path / "run", dataset=dataset, quiet=True)
    place, lists = write(tmp_path / "found", split), tmp_path / "lists"
    gone = [(0, int(split.captions_of(image)[0])) for image in (1, 2, 3)]  # yes, likely, unsure

    def mined(**more: Any) -> Candidates:
        command(str(run.path), depth=200, device="cpu", output=str(lists), **more)
        return Candidates.load(lists)

    whole = mined()
    assert all(c in whole.i2t[i] and i in whole.t2i[c] for i, c in gone)
    clean = mined(without=place)
    assert "found: 3 candidates of images, 3 of captions" in capsys.readouterr().out
    assert not any(c in clean.i2t[i] or i in clean.t2i[c] for i, c in gone)
    for image, row in enumerate(whole.i2t.tolist()):  # nothing else, and in the same order
        left = [c for c in row if c >= 0 and (image, c) not in gone]
        assert [c for c in clean.i2t[image].tolist() if c >= 0] == left
    kept = mined(without=place, sure=0.95).i2t[0]
    assert (kept >= 0).sum() == (clean.i2t[0] >= 0).sum() + 1
    assert np.array_equal(mined().i2t, whole.i2t)  # lists of other pairs are not taken for these
    with pytest.raises(InputError, match="names no pair"):
        mined(without=place, split="val")
    np.savez(tmp_path / "e.npz", images=np.eye(4), texts=np.eye(4))
    with pytest.raises(InputError, match=r"`without`: .* give `data`"):
        command(str(tmp_path / "e.npz"), captions_per_image=1, without=place)


def test_a_flipped_bit_of_found_pairs_is_named_and_the_other_lines_stay(tmp_path: Path) -> None:
    pairs = [Pair(f"{n}.jpg", f"{n + 1}.jpg#0", "two dogs", 0.125 * n, "yes") for n in range(5)]
    path = tmp_path / "found.jsonl"
    write_found(path, pairs)
    whole, named = path.read_bytes(), 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 7)
        path.write_bytes(damaged)
        try:
            assert read_found(path) == pairs, place
        except InputError as error:
            named += "found.jsonl, line " in str(error)
    assert named > 0.9 * len(whole)
    path.write_bytes(whole.replace(b"two", b"tvo", 1))
    with pytest.raises(InputError, match=r"line 1: damaged.*take this line out"):
        read_found(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(True)[1:]))
    assert read_found(path) == pairs[1:]
    path.write_text('{"image": "a.jpg", "caption": "b.jpg#1"}\n')  # as earlier versions wrote it
    assert read_found(path) == [Pair("a.jpg", "b.jpg#1")]
