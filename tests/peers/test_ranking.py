"""Smooth average precision: theirs is of one batch with itself, ours on any similarities."""

import pytest
import torch
from torch.nn.functional import normalize

import simgrad
from tests.peers.batches import SEEDS


@pytest.mark.parametrize("tau", [0.01, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_smooth_ap_of_metric_learning(seed: int, tau: float) -> None:
    """As in their test: groups in order, every vector among its own candidates. Five of
    five: with other numbers theirs reads other groups than the labels (`test_differences.py`)."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    random = torch.Generator().manual_seed(seed)
    vectors = torch.randn(25, 16, generator=random, requires_grad=True)  # theirs is float32
    labels = torch.arange(25) // 5
    theirs = losses.SmoothAPLoss(temperature=tau)(vectors, labels)
    S = normalize(vectors) @ normalize(vectors).T
    ours = simgrad.objective(f"smooth-ap(tau={tau})").on(S, labels[:, None] == labels)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    found, wanted = (torch.autograd.grad(x, vectors, retain_graph=True)[0] for x in (ours, theirs))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_smooth_ap_is_average_precision_where_steps_are_steep(seed: int) -> None:
    """mAP of ours, R@K's relative, is what both approach."""
    random = torch.Generator().manual_seed(seed)
    S = torch.randn(8, 24, generator=random, dtype=torch.double)
    owner = torch.arange(24) % 8
    metrics = simgrad.evaluate_similarities(S, owner)
    value = simgrad.objective("smooth-ap(tau=1e-6)").weigh(S, owner).value
    wanted = 1 - (metrics.i2t_map + metrics.t2i_map) / 2
    assert float(value) == pytest.approx(wanted, abs=1e-6)
