"""Protocols, the five folds against a hand-worked example first of all."""

import numpy as np
import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation import PROTOCOLS, Ranks, evaluate_reranked, metrics_of
from simgrad.evaluation.protocols import Protocol
from simgrad.evaluation.scores import Matrix

# Ten images, one caption each, five folds of two images. Scores within a fold:
#   fold 0: both right in both directions
#   fold 1: images both prefer caption 0, captions both prefer image 0
#   fold 2: images swapped (each prefers the other's caption), so are captions
#   fold 3: a tie everywhere
#   fold 4: image 0 right, image 1 wrong; captions: both prefer image 1
_FOLDS = [
    [[1.0, 0.0], [0.0, 1.0]],
    [[0.9, 0.8], [0.7, 0.2]],
    [[0.0, 0.5], [0.5, 0.0]],
    [[0.3, 0.3], [0.3, 0.3]],
    [[0.5, 0.1], [0.9, 0.6]],
]
# i2t ranks: 1 1 | 1 2 | 2 2 | 2 2 | 1 2      R@1 by fold: 100, 50, 0, 0, 50 -> mean 40
# t2i ranks: 1 1 | 1 2 | 2 2 | 2 2 | 2 1      R@1 by fold: 100, 50, 0, 0, 50 -> mean 40
_I2T = [1, 1, 1, 2, 2, 2, 2, 2, 1, 2]
_T2I = [1, 1, 1, 2, 2, 2, 2, 2, 2, 1]
FIVE = Protocol("five", "five folds", folds=5)


def similarities():
    # Everything outside a fold scores higher than anything within: it must not be looked at.
    whole = np.full((10, 10), 5.0)
    for i, fold in enumerate(_FOLDS):
        whole[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = fold
    return whole


def test_five_folds_by_hand(tmp_path):
    found = simgrad.evaluate_similarities(similarities(), np.arange(10), protocol=FIVE)
    assert found.ranks.i2t.tolist() == _I2T
    assert found.ranks.t2i.tolist() == _T2I
    assert found.i2t_r1 == pytest.approx(40)
    assert found.t2i_r1 == pytest.approx(40)
    assert found.i2t_r5 == 100
    # rsum is the mean of the folds' rsums: 600, 500, 400, 400, 500. Not their sum, not six times.
    assert found.rsum == pytest.approx(480)
    # medians by fold, rounded down: 1, 1, 2, 2, 1
    assert found.i2t_medr == pytest.approx(7 / 5)
    # mean ranks by fold: 1, 1.5, 2, 2, 1.5
    assert found.t2i_meanr == pytest.approx(1.6)
    assert found.ties == 4
    found.ranks.save(tmp_path / "r.parquet")
    again = metrics_of(Ranks.load(tmp_path / "r.parquet"))
    assert again.to_dict() == found.to_dict()


def test_all_together_is_not_the_folds():
    found = simgrad.evaluate_similarities(similarities(), np.arange(10))
    assert found.i2t_r1 == 0


def test_folds_say_what_they_used():
    used = simgrad.evaluate_similarities(similarities(), np.arange(10), protocol=FIVE).used
    assert "mean over 5 folds" in used
    assert "images 4-5 (2), captions 4-5 (2)" in used


def test_coco_folds_are_consecutive_thousands():
    random = np.random.default_rng(0)
    images = random.normal(size=(5000, 8)).astype(np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    pairing = np.repeat(np.arange(5000), 5)
    texts = images[pairing] + 0.3 * random.normal(size=(25000, 8)).astype(np.float32)
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    found = simgrad.evaluate(images, texts, pairing, protocol="coco-1k")
    folds = [
        simgrad.evaluate(
            images[f : f + 1000], texts[5 * f : 5 * f + 5000], np.repeat(np.arange(1000), 5)
        )
        for f in range(0, 5000, 1000)
    ]
    assert len({fold.rsum for fold in folds}) == 5  # they differ
    for name in ("rsum", "i2t_r1", "t2i_r10", "i2t_medr", "t2i_meanr", "i2t_map5"):
        assert found[name] == pytest.approx(np.mean([fold[name] for fold in folds])), name
    assert "images 4,000-4,999 (1,000), captions 20,000-24,999 (5,000)" in found.used


def test_only_the_first_five_captions():
    """As COCO's published evaluations do: some images have six or seven captions."""
    random = np.random.default_rng(1)
    pairing = np.concatenate([np.repeat(np.arange(1000), 5), [3, 3, 999]])
    shuffle = random.permutation(len(pairing))
    pairing = pairing[shuffle]
    matrix = random.normal(size=(1000, 5003)).astype(np.float32)
    seen: dict[int, int] = {}
    kept = []
    for row, image in enumerate(pairing):
        seen[image] = seen.get(image, 0) + 1
        if seen[image] <= 5:
            kept.append(row)
    found = simgrad.evaluate_similarities(matrix, pairing, protocol="flickr30k-1k")
    expected = simgrad.evaluate_similarities(matrix[:, kept], pairing[kept])
    assert found.to_dict() == expected.to_dict()
    assert found.ranks.caption_ids == tuple(str(row) for row in kept)
    assert "3 captions beyond an image's first 5" in found.used


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "all"])
def test_the_wrong_number_of_images_is_refused(name):
    with pytest.raises(InputError, match=f"{name} is defined for"):
        simgrad.evaluate_similarities(np.eye(10), np.arange(10), protocol=name)


def test_fewer_captions_than_a_protocol_needs_are_refused():
    pairing = np.repeat(np.arange(1000), 5)
    few = np.delete(pairing, [12, 4000])
    with pytest.raises(InputError, match=r"needs 5 captions.* image 2 \(and 1 more\) has 4"):
        PROTOCOLS["flickr30k-1k"].check(1000, few)
    PROTOCOLS["flickr30k-1k"].check(1000, pairing)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("all", "every image and caption given"),
        ("flickr30k-1k", "1,000 test images of Flickr30k, 5 captions each"),
        ("coco-5k", "5,000 test images of COCO, 5 captions each"),
        ("coco-1k", "5,000 test images of COCO, 5 captions each, mean over 5 folds of 1,000"),
    ],
)
def test_a_protocol_says_what_it_is(name, words):
    assert str(PROTOCOLS[name]) == words


def test_a_second_scorer_under_a_protocol():
    """It is asked about rows of all the data, whatever fold they are ranked in."""
    whole = torch.from_numpy(similarities())
    reranked = evaluate_reranked(
        Matrix(torch.zeros(10, 10)), np.arange(10), lambda p: whole[p[:, 0], p[:, 1]], 10,
        protocol=FIVE, image_ids=[f"{i}.jpg" for i in range(10)],
    )  # fmt: skip
    assert reranked.ranks.i2t.tolist() == _I2T
    assert reranked.ranks.t2i.tolist() == _T2I
    assert reranked.ranks.image_ids[3] == "3.jpg"
    assert "The first 10 of every query were scored again" in reranked.used
