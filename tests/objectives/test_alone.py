"""Batches without a positive, and what is nobody's: in every form, and on several processes."""

import pytest
import torch
from torch import Tensor

from simgrad.integrations import ClipLoss, MetricLearningLoss
from simgrad.objectives import Objective, Offline, Positives, SigLIP, objective
from simgrad.objectives.across_processes import Distributed

from .cases import everything, names
from .threads import Rank, run

EVERYTHING = everything()
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))


@each_objective
def test_a_batch_without_a_positive_is_0_and_teaches_nothing(o: Objective) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 5, generator=generator) for n in (4, 6))
    nothing = Positives.of_mask(torch.zeros(4, 6, dtype=torch.bool))
    offline = Offline(*torch.zeros(4, 0)) if o.needs_offline else None
    learned = [p for p in o.parameters() if p.requires_grad]
    for block in (None, 5):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        loss = o.float()(a, b, nothing, offline, block=block)
        gradients = torch.autograd.grad(loss, [a, b, *learned])
        assert not loss.detach()
        assert not any(g.any() for g in gradients)
    weights = o.weigh(x @ y.T, nothing, offline)
    assert not weights.value
    assert not weights.i2t.any()
    assert not weights.t2i.any()


@pytest.mark.parametrize("spec", ["goal", "multi-similarity", "siglip", "nt-xent"])
def test_a_share_without_a_positive_is_part_of_the_batch(spec: str) -> None:
    """Rank 1 has captions that are nobody's alone; all ranks have nothing at all."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, 4, generator=generator) for _ in range(2))
    mask = torch.eye(5, dtype=torch.bool)
    mask[3:] = False

    for some in (mask, torch.zeros_like(mask)):
        whole = objective(spec)(x, y, Positives.of_mask(some)).detach()

        def shared(rank: Rank, some: Tensor = some) -> Tensor:
            part = slice(0, 3) if rank.rank == 0 else slice(3, 5)
            spread = Distributed(objective(spec), transport=rank)
            found: Tensor = spread(x[part], y[part], Positives.of_mask(some[part, part]))
            return found.detach()

        for found in run(2, shared):
            torch.testing.assert_close(found, whole)


def test_labels_that_never_meet_are_0() -> None:
    loss = MetricLearningLoss("multi-similarity")
    images, texts = torch.randn(4, 3), torch.randn(4, 3)
    assert float(loss(images, torch.arange(4), ref_emb=texts, ref_labels=torch.arange(4) + 9)) == 0


def test_what_is_nobodys_is_a_whole_negative_for_siglip() -> None:
    """1 / n times the sum over all pairs, whoever they belong to: a loop."""
    generator = torch.Generator().manual_seed(0)
    S = 2 * torch.rand(3, 5, generator=generator).double() - 1
    index = torch.tensor([0, -1, 1, 2, -1])
    o = SigLIP(scale=4.0, offset=-1.0).to(torch.float64)
    expected, weights = 0.0, torch.zeros_like(S)
    for i in range(3):
        for j in range(5):
            sign = 1.0 if int(index[j]) == i else -1.0
            logit = sign * (4 * S[i, j] - 1)
            expected += float(torch.nn.functional.softplus(-logit)) / 3
            weights[i, j] = -sign * 4 * torch.sigmoid(-logit) / 3
    found = o.weigh(S, index)
    assert float(found.value) == pytest.approx(expected)
    torch.testing.assert_close(found.i2t + found.t2i, weights)
    # A negative is a negative: the same weight, whether it has an image or not.
    flat = o.weigh(torch.zeros(3, 5).double(), index)
    pushed = (flat.i2t + flat.t2i)[index[None] != torch.arange(3)[:, None]]
    torch.testing.assert_close(pushed, pushed[0].expand_as(pushed))


def test_the_same_in_open_clips_form_and_of_an_image() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 4, generator=generator).double() for n in (3, 5))
    o = SigLIP(scale=4.0, offset=-1.0).to(torch.float64)
    index = torch.tensor([0, -1, 1, 2, -1])
    borrowed = ClipLoss(SigLIP(scale=4.0, offset=-1.0).to(torch.float64))
    scale, bias = torch.tensor(4.0).double(), torch.tensor(-1.0).double()
    found = borrowed(x, y, scale, bias, positives=index)
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, o(x, y, index).detach())
    # Seen from the other side: images that have no caption.
    mask = index[None] == torch.arange(3)[:, None]
    torch.testing.assert_close(o(y, x, Positives.of_mask(mask.T)), o(x, y, index))
