"""Several truths in one pass: the same places as each truth counted on its own."""

import numpy as np
import pytest
import torch

from simgrad.evaluation import rivals
from simgrad.evaluation.coco import Pool
from simgrad.evaluation.rivals import count_rivals
from simgrad.evaluation.scores import Blocks, Embeddings, Matrix
from simgrad.evaluation.truth import Truth, truth_positions

IMAGES, CAPTIONS = 130, 390


def coarse():
    """Embeddings of few different values: hundreds of ties, and twins."""
    random = torch.Generator().manual_seed(3)
    images, captions = (
        torch.randint(-2, 3, (n, 6), generator=random).float() for n in (IMAGES, CAPTIONS)
    )
    return images, captions


def random_truth(random, queries, candidates, own):
    """Some of the own pairs, and others; for some queries only, one candidate not to be found."""
    chosen = random.random((queries, candidates)) < 0.03
    chosen |= own & (random.random(own.shape) < 0.8)
    chosen[::7] = False
    query, candidate = np.nonzero(chosen)
    candidate[5] = -1
    return Truth.of(query, candidate)


SOURCES = {
    "embeddings": Embeddings,
    "matrix": lambda images, captions: Matrix(images @ captions.T),
    "blocks": lambda images, captions: Blocks(
        lambda start, stop: images[start:stop] @ captions.T, len(images), len(captions)
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("undecided", [0, 10**6])  # 0: guesses do not help, all is counted again
def test_pool_is_each_truth_alone(source, undecided, monkeypatch):
    monkeypatch.setattr(rivals, "_UNDECIDED", undecided)
    scores = SOURCES[source](*coarse())
    pairing = np.random.default_rng(1).permutation(np.arange(CAPTIONS) % IMAGES)
    own = np.arange(IMAGES)[:, None] == pairing
    random = np.random.default_rng(2)
    truths = [
        (way, random_truth(random, *matrix.shape, matrix))
        for way, matrix in 2 * [("i2t", own), ("t2i", own.T)]
    ]
    pool = Pool.of(scores, pairing, truths)
    alone = count_rivals(scores, torch.from_numpy(pairing))
    for name in ("own", "i2t", "t2i", "i2t_tied", "t2i_tied"):
        assert torch.equal(getattr(pool.counts, name), getattr(alone, name)), name
    assert (alone.i2t_tied > 0).sum() > IMAGES / 2
    for way, truth in truths:
        wanted = truth_positions(scores if way == "i2t" else scores.transposed(), truth)
        found = pool.positions(truth, way)
        assert np.array_equal(found.offsets, wanted.offsets)
        assert np.array_equal(found.places, wanted.places)


def test_a_pool_of_the_pairing_alone():
    scores = Embeddings(*coarse())
    pairing = np.arange(CAPTIONS) % IMAGES
    truth = Truth.of(pairing, np.arange(CAPTIONS))
    found = Pool.of(scores, pairing, [("i2t", truth)]).positions(truth, "i2t")
    assert np.array_equal(found.places, truth_positions(scores, truth).places)
