"""Triplets and n-tuples that others can read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.cli.mine import mine
from simgrad.core.errors import InputError
from simgrad.data.candidates import Candidates, open_candidates
from simgrad.mining.tuples import chosen, tuples_of, write_tuples

OWNER = np.array([0, 0, 1, 2])
IMAGES, CAPTIONS = ["a.jpg", "b.jpg", "c.jpg"], ["one", "two", "three", "fo ür"]


def lists() -> Candidates:
    i2t = np.array([[2, 3], [0, -1], [1, 2]], dtype=np.int32)
    t2i = np.array([[1, 2], [2, -1], [0, 2], [0, 1]], dtype=np.int32)
    scores = [np.where(side < 0, -np.inf, 0.5).astype(np.float32) for side in (i2t, t2i)]
    return Candidates(i2t, t2i, {}, i2t_scores=scores[0], t2i_scores=scores[1])


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    datasets = pytest.importorskip("datasets")
    if path.suffix == ".parquet":
        return list(datasets.load_dataset("parquet", data_files=str(path), split="train",
                                          cache_dir=str(path.parent / "cache")))  # fmt: skip
    return list(datasets.load_from_disk(str(path)))


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet", "folder"])
def test_triplets_in_every_format(name: str, tmp_path: Path) -> None:
    made = tuples_of(lists(), OWNER, "t2i", num_negatives=2)
    rows = read(write_tuples(tmp_path / name, made, IMAGES, CAPTIONS))
    assert rows[:3] == [
        {"anchor": "one", "positive": "a.jpg", "negative": "b.jpg"},
        {"anchor": "one", "positive": "a.jpg", "negative": "c.jpg"},
        {"anchor": "two", "positive": "a.jpg", "negative": "c.jpg"},
    ]
    assert len(rows) == 7


def test_tuples_leave_out_pairs_with_too_few(tmp_path: Path) -> None:
    made = tuples_of(lists(), OWNER, "i2t", "n-tuple", num_negatives=2)
    rows = read(write_tuples(tmp_path / "t.jsonl", made, IMAGES, CAPTIONS))
    assert rows[0] == {
        "anchor": "a.jpg", "positive": "one", "negative_1": "three", "negative_2": "fo ür"
    }  # fmt: skip
    assert [row["anchor"] for row in rows] == ["a.jpg", "a.jpg", "c.jpg"]
    none = tuples_of(lists(), OWNER, "i2t", "n-tuple", num_negatives=3)
    with pytest.raises(InputError, match="enough negatives"):
        write_tuples(tmp_path / "t.jsonl", none, IMAGES, CAPTIONS)
    with pytest.raises(InputError, match="parquet"):
        write_tuples(tmp_path / "t.csv", made, IMAGES, CAPTIONS)


def test_pictures_with_files_are_decoded_by_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    files = []
    for i in range(3):
        files.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (4, 4), (80 * i, 0, 0)).save(files[-1])
    made = tuples_of(lists(), OWNER, "t2i", num_negatives=1)
    write_tuples(tmp_path / "folder", made, files, CAPTIONS)
    row = datasets.load_from_disk(str(tmp_path / "folder"))[0]
    assert row["anchor"] == "one"
    assert row["positive"].getpixel((0, 0)) == (0, 0, 0)
    assert row["negative"].getpixel((0, 0)) == (80, 0, 0)


def test_sampling() -> None:
    wide = np.tile(np.arange(50, dtype=np.int32), (400, 1))
    scores = np.tile(np.linspace(0.9, 0.1, 50, dtype=np.float32), (400, 1))
    assert np.array_equal(chosen(wide, scores, 3), wide[:, :3])
    even, by_score = (chosen(wide, scores, 3, how) for how in ("random", "score"))  # type: ignore[arg-type]
    assert 20 < even.mean() < 29
    assert by_score.mean() < 8
    assert all(len(set(row)) == 3 for row in (*even, *by_score))
    assert np.array_equal(even, chosen(wide, scores, 3, "random"))
    assert not np.array_equal(even, chosen(wide, scores, 3, "random", seed=1))
    short = np.array([[4, -1, -1, -1]], dtype=np.int32)
    assert chosen(short, None, 3, "random").tolist() == [[4, -1, -1]]
    with pytest.raises(InputError, match="scores"):
        chosen(short, None, 1, "score")


def test_the_command_on_files_of_embeddings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    owner = np.arange(100) // 5
    images = random.normal(size=(20, 8))
    texts = images[owner] + random.normal(size=(100, 8))
    np.savez(tmp_path / "a.npz", images=images, texts=texts, image_of_caption=owner)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "texts.npy", texts)
    mine(
        str(tmp_path / "a.npz"),
        depth=5,
        relative_margin=0.05,
        triplets=(tmp_path / "t.jsonl",),
        aoq="own",
    )
    said = capsys.readouterr().out
    assert "relative_margin 0.05" in said
    assert "own pairs" in said
    folder = tmp_path / "a-candidates"
    assert (folder / "statistics.png").is_file()
    found, aoq = Candidates.load(folder), open_candidates(folder / "i2t_own.npy")
    assert found.t2i_scores is not None
    assert aoq.i2t.shape == found.i2t.shape
    row = read(tmp_path / "t.jsonl")[0]
    assert row == {"anchor": "0", "positive": "0", "negative": str(found.t2i[0, 0])}
    files = {"images": str(tmp_path / "images.npy"), "texts": str(tmp_path / "texts.npy")}
    mine(**files, captions_per_image=5, depth=5, relative_margin=0.05, output=str(tmp_path / "b"))
    assert np.array_equal(Candidates.load(tmp_path / "b").t2i, found.t2i)
    with pytest.raises(InputError, match="mine what"):
        mine()
    with pytest.raises(InputError, match="written as"):  # and nothing was mined before
        mine(str(tmp_path / "none.npz"), tuples=(tmp_path / "x.csv",))
