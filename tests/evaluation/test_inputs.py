"""What is refused, and that the message says where."""

import numpy as np
import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks, evaluate_ensemble, rank_blocks
from simgrad.evaluation.evaluator import embedding_scores
from simgrad.evaluation.scores import Average

GOOD = np.eye(4, 8)
PAIRING = np.arange(8) % 4


def vectors(rows, seed=0):
    values = np.random.default_rng(seed).normal(size=(rows, 5))
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def refused(match, call, *arguments, **options):
    with pytest.raises(InputError, match=match):
        call(*arguments, **options)


def test_nan_names_its_row():
    images, texts = vectors(4), vectors(8)
    images[2, 3] = np.nan
    refused("images, row 2: the vector has NaN", simgrad.evaluate, images, texts, PAIRING)
    texts[5, 0] = np.inf
    refused("texts, row 5.*infinite", simgrad.evaluate, vectors(4), texts, PAIRING)
    similarities = GOOD.copy()
    similarities[3, 6] = np.nan
    message = "image 3 and caption 6 is NaN"
    refused(message, simgrad.evaluate_similarities, similarities, PAIRING)
    refused(message, rank_blocks, lambda a, b: torch.tensor(similarities)[a:b], PAIRING, rows=2)


def test_infinities_that_cancel_out_in_an_ensemble():
    high, low = GOOD.copy(), GOOD.copy()
    high[0, 4], low[0, 4] = np.inf, -np.inf
    refused("image 0 and caption 4 is NaN", evaluate_ensemble, [high, low], PAIRING)


def test_ids_are_taken_in_their_order():
    """A pandas series looks up labels, which are no longer 0, 1, ... in a part of a table."""

    class Series(list):
        def __getitem__(self, label):
            return super().__getitem__(3 - label)

    metrics = simgrad.evaluate_similarities(GOOD, PAIRING, image_ids=Series("abcd"))
    assert metrics.ranks.image_ids == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("pairing", "match"),
    [
        (np.arange(7), "7 entries for 8 captions"),
        (np.arange(8), r"image_of_caption\[4\] is 4, but images are numbered 0 to 3"),
        (np.arange(8) % 4 - 1, r"image_of_caption\[0\] is -1"),
        (np.arange(8) % 3, "image 3 has no caption"),
        (np.zeros(8, dtype=int), r"image 1 \(and 2 more\) has no caption"),
        (np.arange(8) / 2, "whole number"),
        (np.zeros((8, 1), dtype=int), "whole number"),
    ],
)
def test_pairings(pairing, match):
    refused(match, simgrad.evaluate_similarities, GOOD, pairing)
    refused(match, simgrad.evaluate, vectors(4), vectors(8), pairing)


def test_shapes():
    refused("share one space", simgrad.evaluate, vectors(4)[:, :3], vectors(8), PAIRING)
    refused("rows, dimension", simgrad.evaluate, vectors(4)[0], vectors(8), PAIRING)
    refused("images, captions", simgrad.evaluate_similarities, GOOD[0], PAIRING)
    refused("numbers are needed", simgrad.evaluate, [["a"]], [["b"]], [0])
    refused("shape", rank_blocks, lambda a, b: torch.zeros(b - a, 5), PAIRING)
    refused("K of 1 or more", simgrad.evaluate_similarities, GOOD, PAIRING, recalls=(0,))
    refused("image_ids has 1", simgrad.evaluate_similarities, GOOD, PAIRING, image_ids=["a"])
    refused("no protocol 'coco'", simgrad.evaluate_similarities, GOOD, PAIRING, protocol="coco")


def test_lengths_that_differ_are_pointed_out():
    images = vectors(4) * np.arange(1, 5)[:, None]
    with pytest.warns(UserWarning, match="normalise=True"):
        by_product = simgrad.evaluate(images, vectors(8, 1), PAIRING)
    by_angle = simgrad.evaluate(images, vectors(8, 1), PAIRING, normalise=True)
    expected = simgrad.evaluate(vectors(4), vectors(8, 1), PAIRING)
    assert by_angle.to_dict() == expected.to_dict()
    assert by_product.t2i_r1 != expected.t2i_r1


def test_metrics_name_those_that_exist():
    found = simgrad.evaluate_similarities(GOOD, PAIRING)
    assert found.i2t_r1 == found["i2t_r1"] == found.to_dict()["i2t_r1"]
    assert "rsum" in repr(found)
    with pytest.raises(AttributeError, match="rsum"):
        _ = found.i2t_rank


def test_ranks_survive_parquet(tmp_path):
    similarities = np.random.default_rng(0).normal(size=(5, 14)).round(1)
    pairing = np.array([4, 0, 1, 2, 3, 0, 0, 1, 2, 2, 4, 4, 3, 0])
    names = [f"picture {i}.jpg" for i in range(5)]
    captions = [f"picture#{i}" for i in range(14)]
    found = simgrad.evaluate_similarities(
        similarities, pairing, image_ids=names, caption_ids=captions
    ).ranks
    found.save(tmp_path / "deep" / "ranks.parquet")
    again = Ranks.load(tmp_path / "deep" / "ranks.parquet")
    assert again.image_ids == tuple(names)
    assert again.caption_ids == tuple(captions)
    for name in ("i2t", "t2i", "caption_rank", "image_of_caption", "fold", "i2t_tied", "t2i_tied"):
        assert np.array_equal(getattr(again, name), getattr(found, name)), name


def test_ranks_that_cannot_be_read(tmp_path):
    refused("no such file", Ranks.load, tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not parquet")
    refused("not a file of ranks", Ranks.load, tmp_path / "text.parquet")
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"image": [1]}), tmp_path / "other.parquet")
    refused("not a file of ranks", Ranks.load, tmp_path / "other.parquet")


def test_a_member_of_an_ensemble_may_count_twice():
    """It gives its similarities in the same memory again."""
    one, other = (embedding_scores(vectors(4, s), vectors(8, s + 9)) for s in (0, 1))
    block, alone = Average([one, other, one]).compute(0, 4), other.compute(0, 4).clone()
    torch.testing.assert_close(block, (2 * one.compute(0, 4) + alone) / 3)
