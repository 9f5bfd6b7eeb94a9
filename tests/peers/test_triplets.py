"""Hinges on triplets: all of them, or the hardest negative's, as pytorch-metric-learning has them.

Theirs counts a triplet for each query, positive and negative, from one side; ours adds both sides.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

import simgrad
from simgrad.core.errors import InputError
from simgrad.integrations import from_metric_learning
from tests.peers.batches import GROUPS, PAIRS, Batch, groups, pairs
from tests.peers.test_contrastive import both_ways, same

MARGINS = (0.0, 0.05, 0.2, 1.0)


def summed(margin: float) -> Any:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.reducers import SumReducer

    return losses.TripletMarginLoss(
        margin=margin, distance=CosineSimilarity(), reducer=SumReducer()
    )


def mined(margin: float, batch: Batch) -> Tensor:
    """The hardest negative of every pair, both ways, by their miner."""
    loss = summed(margin)
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.miners import BatchEasyHardMiner

    miner = BatchEasyHardMiner("all", "hard", distance=CosineSimilarity())
    labels, others = batch.labels
    sides = [
        (batch.images, labels, batch.texts, others),
        (batch.texts, others, batch.images, labels),
    ]
    total = batch.images.new_zeros(())
    for queries, own, candidates, their in sides:
        found = miner(queries.detach(), own, candidates.detach(), their)
        total = total + loss(queries, own, found, candidates, their)
    return total


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("name", PAIRS)
def test_all_triplets(name: str, margin: float) -> None:
    batch = pairs(name)
    ours = simgrad.objective(f"triplet(margin={margin})")(batch.images, batch.texts)
    same(batch, ours, 2 * both_ways(summed(margin), batch))


@pytest.mark.parametrize("margin", [0.05, 0.5])
@pytest.mark.parametrize("name", [*GROUPS, "nobodys"])
def test_all_triplets_of_several_positives(name: str, margin: float) -> None:
    batch = groups(name)
    ours = simgrad.objective(f"triplet(margin={margin})")(batch.images, batch.texts, batch.owner)
    same(batch, ours, 2 * both_ways(summed(margin), batch))


@pytest.mark.parametrize("margin", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("name", [n for n in PAIRS if n != "duplicates"])  # ties: another choice
def test_the_hardest_negative(name: str, margin: float) -> None:
    batch = pairs(name)
    ours = simgrad.objective(f"triplet-sh(margin={margin})")(batch.images, batch.texts)
    same(batch, ours, mined(margin, batch))


@pytest.mark.parametrize("margin", [0.05, 0.5])
@pytest.mark.parametrize("name", [n for n in GROUPS if n != "angles"])  # ties, too
def test_the_hardest_negative_of_several_positives(name: str, margin: float) -> None:
    batch = groups(name)
    ours = simgrad.objective(f"triplet-sh(margin={margin})")(batch.images, batch.texts, batch.owner)
    same(batch, ours, mined(margin, batch))


# --- their losses, as objectives of ours: value and gradient of both directions' mean

MADE: dict[str, dict[str, Any]] = {
    "CircleLoss": {"m": 0.4, "gamma": 80},
    "ContrastiveLoss": {"pos_margin": 0.1, "neg_margin": 0.9},
    "GeneralizedLiftedStructureLoss": {},
    "IntraPairVarianceLoss": {},
    "LiftedStructureLoss": {"neg_margin": 0.5},
    "MarginLoss": {"margin": 0.3, "nu": 0, "beta": 1.2},
    "MultiSimilarityLoss": {"alpha": 2, "beta": 50, "base": 0.5},
    "NCALoss": {"softmax_scale": 3},
    "NTXentLoss": {"temperature": 0.3},
    "SupConLoss": {"temperature": 0.3},
    "TripletMarginLoss": {"margin": 0.3, "smooth_loss": True},
    "TupletMarginLoss": {"margin": 5.73, "scale": 64},
}


@pytest.mark.parametrize("kind", MADE)
def test_their_losses_keep_their_values_here(kind: str) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    loss, batch = getattr(losses, kind)(**MADE[kind]), pairs("0")
    ours = from_metric_learning(loss)(batch.images, batch.texts)
    theirs = both_ways(loss, batch)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for one, other in zip(batch.gradients(ours), batch.gradients(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "kind", ["FastAPLoss", "HistogramLoss", "SmoothAPLoss", "VICRegLoss", "AngularLoss"]
)
def test_what_does_not_compare_two_sides_is_refused(kind: str) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    with pytest.raises(InputError, match=f"{kind} |distance"):
        from_metric_learning(getattr(losses, kind)())
