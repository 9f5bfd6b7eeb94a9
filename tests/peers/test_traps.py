"""Traps that others fell into (their own issue threads name them): we do not."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import simgrad
from simgrad.integrations import MetricLearningLoss
from tests.peers.batches import pairs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("count", [300, 2000])
def test_nothing_outranks_itself(count: int, dtype: torch.dtype) -> None:
    """An item's own score comes from the product that its rivals' come from."""
    random = torch.Generator().manual_seed(count)
    vectors = normalize(torch.randn(count, 48, generator=random)).to(dtype)
    found = simgrad.evaluate(vectors, vectors, normalise=True)
    assert (found.i2t_r1, found.t2i_r1) == (100.0, 100.0)


def test_a_model_that_tells_nothing_apart_scores_nothing() -> None:
    found = simgrad.evaluate(torch.ones(20, 4), torch.ones(100, 4), torch.arange(100) // 5)
    assert (found.i2t_r10, found.t2i_r10, found.rsum) == (0.0, 0.0, 0.0)
    assert found.ties == 120


def test_duplicates_count_against_us() -> None:
    """Two images that are the same: neither is first for its caption."""
    images = torch.eye(4)[[0, 0, 1, 2]]
    found = simgrad.evaluate(images, images)
    assert (found.t2i_r1, found.i2t_r1) == (50.0, 50.0)


def test_negative_cosines_are_hits() -> None:
    S = torch.full((4, 4), -0.9) + 0.5 * torch.eye(4)
    assert simgrad.evaluate_similarities(S).rsum == 600.0


def test_mining_keeps_nothing_of_an_earlier_model() -> None:
    """sentence-transformers' cache goes by the model's name: later weights got earlier vectors."""
    batch = pairs("0")
    first = simgrad.mine(batch.images.detach(), batch.texts.detach(), depth=3)
    second = simgrad.mine(batch.images.detach().flip(1), batch.texts.detach(), depth=3)
    assert not np.array_equal(first.i2t, second.i2t)


@pytest.mark.parametrize("spec", ["nt-xent", "triplet", "triplet-sh", "siglip", "smooth-ap"])
def test_labels_are_read_not_compared_as_objects(spec: str) -> None:
    batch, labels = pairs("1"), torch.arange(16)
    loss = MetricLearningLoss(spec)
    one = loss(batch.images, labels, ref_emb=batch.texts, ref_labels=labels)
    other = loss(batch.images, labels, ref_emb=batch.texts, ref_labels=labels.clone())
    assert float(one.detach()) == float(other.detach()) > 0


@pytest.mark.parametrize("spec", ["triplet", "triplet-sh", "siglip"])
def test_captions_of_one_image_are_never_its_negatives(spec: str) -> None:
    """Nor pushed; a softmax (nt-xent) may push one of several that has more than its share."""
    batch, owner = pairs("1"), torch.arange(16) // 4
    weights = simgrad.objective(spec).weigh(batch.similarities[:4], owner)
    own = torch.arange(4)[:, None] == owner
    assert not (weights.i2t[own] > 1e-12).any()
    assert not (weights.t2i[own] > 1e-12).any()
