"""The objective of recipes/top_k.py against a slow loop, and at both of its ends."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import simgrad
from simgrad.objectives import objectives
from simgrad.studies.plan import read_plan

RECIPES = Path(__file__).parents[2] / "recipes"
OWNER = torch.tensor([0, 0, 1, 2, 3, 4, 5, 5])  # image of caption


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    runpy.run_path(str(RECIPES / "top_k.py"))
    yield
    del objectives._declared["triplet-k"]


def slow(S: Tensor, k: int) -> Tensor:
    """Both directions, triplet by triplet."""
    captions_of = [[c for c in range(8) if OWNER[c] == i] for i in range(6)]
    total = S.new_zeros(())
    for scores, positives in ((S, captions_of), (S.t(), [[int(i)] for i in OWNER])):
        for row, own in zip(scores, positives, strict=True):
            others = [row[c] for c in range(len(row)) if c not in own]
            hardest = sorted(others, key=lambda s: -s.item())[:k]
            total = total + sum((0.2 + n - row[p]).relu() for n in hardest for p in own) / k
    return total


@pytest.mark.parametrize("k", [1, 2, 5])
def test_it_is_the_mean_over_the_k_hardest(k: int) -> None:
    S = torch.rand(6, 8, generator=torch.Generator().manual_seed(k)).requires_grad_()
    value = slow(S, k)
    (expected,) = torch.autograd.grad(value, S)
    weights = simgrad.objective(f"triplet-k(k={k})").weigh(S.detach(), OWNER)
    assert torch.allclose(weights.value, value)
    assert torch.allclose(weights.i2t + weights.t2i, expected)


@pytest.mark.parametrize(("k", "other"), [(1, "triplet-sh"), (128, "triplet")])
def test_its_ends_are_the_published_losses(k: int, other: str) -> None:
    S = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
    one = simgrad.objective(f"triplet-k(k={k})").weigh(S, OWNER)
    published = simgrad.objective(other).weigh(S, OWNER)
    assert torch.allclose(one.i2t * k, published.i2t, atol=1e-5)
    assert torch.allclose(one.t2i * k, published.t2i, atol=1e-5)


def test_the_study_can_be_run() -> None:
    plan = read_plan(RECIPES / "flickr8k-negatives.yaml")
    assert {plan.recipe(row, 0).epochs for row in plan.rows} == {12}
