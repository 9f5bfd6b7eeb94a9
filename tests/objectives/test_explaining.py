"""One line for a log, against loops over the weights of the whole matrix."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

import simgrad
from simgrad.core.errors import InputError
from simgrad.objectives import Objective, Positives, objective

from .cases import everything, names
from .test_ways import _batches, _given

EVERYTHING = everything()
BATCHES = ["diagonal", "captions", "mask", "nobody's captions", "ignored, a mask"]


def _counted(name: str, W: Tensor, P: Tensor) -> str:
    """W and P (queries, candidates): query by query."""
    effective, hardest, silent, asking = [], [], 0, 0
    for weights, positive in zip(W.tolist(), P.tolist(), strict=True):
        push = [abs(w) for w, own in zip(weights, positive, strict=True) if not own]
        if any(positive) or any(weights):
            asking += 1
            silent += not any(weights)
        if any(push):
            effective.append(sum(push) ** 2 / sum(w * w for w in push))
            hardest.append(max(push) / sum(push))
    if not effective:
        return f"{name}: no negative is pushed, {silent} of {asking} queries silent"
    mean = [sum(some) / len(some) for some in (effective, hardest)]
    return (
        f"{name}: {mean[0]:.1f} effective negatives, {mean[1]:.0%} on the hardest, "
        f"{silent} of {asking} queries silent"
    )


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
def test_every_objective_explains_itself(o: Objective, batch: str) -> None:
    _, _, positives, ignore = _batches()[batch]
    x, y, offline = _given(o, batch)
    W = o.weigh(normalize(x) @ normalize(y).T, positives, offline, ignore=ignore)
    P = Positives.read(positives, len(x), len(y), x.device).i2t.mask()
    told = [_counted("i2t", W.i2t, P), _counted("t2i", W.t2i.T, P.T)]
    for block in (None, 30):
        found = o.explain(x, y, positives, offline, ignore=ignore, block=block)
        assert found == f"{o} {'; '.join(told)}"


def test_the_line_has_the_numbers_of_cocos() -> None:
    x, y = (torch.randn(9, 4, generator=torch.Generator().manual_seed(n)) for n in (0, 1))
    counts = simgrad.cocos("nt-xent", normalize(x) @ normalize(y).T).t2i
    told = f"{counts.effective:.1f} effective negatives, {counts.hardest_share:.0%} on the hardest"
    assert told in objective("nt-xent(direction=t2i)").explain(x.requires_grad_(), y.half().float())


def test_what_is_nobodys_is_no_silent_query() -> None:
    queue = torch.cat([torch.eye(4), torch.eye(4)])
    owner = torch.tensor([0, 1, 2, 3, -1, -1, -1, -1])
    assert "of 4 queries silent" in objective("nt-xent").explain(torch.eye(4), queue, owner)
    assert "0 of 8 queries silent" in objective("siglip").explain(torch.eye(4), queue, owner)
    S = torch.rand(4, 8, generator=torch.Generator().manual_seed(0))
    assert simgrad.cocos("nt-xent", S, owner).t2i.zero_share == 0


def test_one_direction_is_one_part_and_nothing_has_a_gradient() -> None:
    far = torch.eye(3, requires_grad=True)
    o = objective("triplet(direction=i2t)")
    assert o.explain(far, far) == f"{o} i2t: no negative is pushed, 3 of 3 queries silent"
    assert far.grad is None


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="square"):
        objective("nt-xent").explain(torch.rand(3, 4), torch.rand(2, 4))
    with pytest.raises(InputError, match="images"):
        objective("nt-xent").explain(torch.full((3, 4), torch.nan), torch.rand(3, 4))
