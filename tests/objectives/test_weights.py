"""Every objective's weights against slow loops, autograd of the written-out loss, differences."""

import math

import numpy as np
import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.objectives import Goal, NTXent, SigLIP, TripletSH, objective, objectives
from simgrad.objectives.base import Objective

from . import reference
from .cases import Case, cases, everything, names

EVERYTHING = everything()
PUBLISHED = [o for o in EVERYTHING if o.name in reference.LOOPS or o.name in reference.OFFLINE]
# Written-out losses: the weights are the gradient of the value returned.
POTENTIALS = [o for o in EVERYTHING if getattr(o, "has_potential", True)]
CASES = cases()
each_case = pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])


def test_every_declared_objective_of_the_package_has_a_loop() -> None:
    for declaration in objectives:
        name = declaration.factory.name  # type: ignore[attr-defined]
        assert name in reference.LOOPS or name in reference.OFFLINE, f"write a loop for {name}"


def _settings(o: Objective) -> Objective:
    """The loop takes a temperature; a learned one is its inverse."""
    return NTXent(tau=1 / float(o.log_scale.detach().exp())) if _learned(o) else o


def _learned(o: Objective) -> bool:
    return isinstance(o, NTXent) and o.learned


@each_case
@pytest.mark.parametrize("o", PUBLISHED, ids=names(PUBLISHED))
def test_weights_equal_the_loop(o: Objective, case: Case) -> None:
    offline = case.offline(o)
    weights = o.weigh(case.S, case.positives, offline)
    outside = None if offline is None else torch.stack(list(offline)).numpy()
    expected = reference.both(_settings(o), case.S.numpy(), case.mask.numpy(), outside)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(weights.value, expected["value"], **close)
    if case.name in ("ties", "duplicates"):  # any of several equally hard negatives may be taken
        _equal_up_to_ties(weights.i2t.numpy(), expected["i2t"], case.S.numpy())
        _equal_up_to_ties(weights.t2i.numpy().T, expected["t2i"].T, case.S.numpy().T)
    else:
        np.testing.assert_allclose(weights.i2t, expected["i2t"], **close)
        np.testing.assert_allclose(weights.t2i, expected["t2i"], **close)
    if weights.offline is not None:
        np.testing.assert_allclose(torch.stack(list(weights.offline)), expected["offline"], **close)


def _equal_up_to_ties(ours: np.ndarray, loop: np.ndarray, S: np.ndarray) -> None:
    """Per query, the weight on all candidates of one similarity must agree."""
    for q in range(len(S)):
        for s in np.unique(S[q]):
            same = S[q] == s
            np.testing.assert_allclose(ours[q, same].sum(), loop[q, same].sum(), atol=1e-9)


def _hardest(S: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return S.masked_fill(mask, -torch.inf).max(1).values


def _written_out(o: Objective, S: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """One direction's loss as anybody would write it in PyTorch; rows are queries."""
    rows, columns = mask.nonzero(as_tuple=True)
    own = S[rows, columns]
    if o.name == "triplet":
        cost = (o.margin + S[rows] - own[:, None]).clamp(min=0)
        return cost.masked_fill(mask[rows], 0).sum()
    if o.name == "triplet-sh" or (o.name == "goal" and (o.triplet, o.pair) == ("con", "con")):
        return (o.margin + _hardest(S, mask)[rows] - own).clamp(min=0).sum()
    if o.name == "goal":
        negative = _hardest(S, mask)[rows]
        if o.triplet == "nca":
            return torch.logaddexp(torch.zeros_like(own), o.tau * (negative - own)).sum() / o.tau
        # Circle's potential with optima 1 and 0; its gradient carries 2 tau.
        circle = o.tau * ((own - 1) ** 2 + negative**2 - 1)
        return torch.logaddexp(torch.zeros_like(own), circle).sum() / (2 * o.tau)
    if o.name == "nt-xent":
        logits = S * o.log_scale.exp() if o.learned else S / o.tau
        share = 1 / mask.sum(1)[rows]
        return -(logits.log_softmax(1)[rows, columns] * share).sum() / (2 * len(S))
    if o.name == "debiased-nt-xent":
        logits, share = S / o.tau, mask / mask.sum(1, keepdim=True)
        count = (~mask).sum(1)
        expected = o.prior * count * (logits.exp() * share).sum(1)
        estimate = ((logits.exp() * ~mask).sum(1) - expected) / (1 - o.prior)
        bounded = torch.maximum(estimate, count * math.exp(-1 / o.tau))
        whole = (logits.exp() * mask).sum(1) + bounded
        return (whole.log() - (logits * share).sum(1)).sum() / (2 * len(S))
    if o.name == "siglip":
        sign = 2.0 * mask - 1
        logits = sign * (S * o.log_scale.exp() + o.bias)
        return -torch.nn.functional.logsigmoid(logits).sum() / (2 * len(S))
    if o.name == "focused-deviance":
        soft_maximum = o.focus * (S.masked_fill(mask, -torch.inf) / o.focus).logsumexp(1)
        positive = torch.nn.functional.softplus(o.alpha * (o.lambda_ - S)) / o.alpha
        negative = torch.nn.functional.softplus(o.beta * (soft_maximum - o.lambda_)) / o.beta
        return ((positive * mask).sum(1) / mask.sum(1) + negative).sum()
    if o.name == "nca-loss":
        logits = S / o.tau
        right = logits.masked_fill(~mask, -torch.inf).logsumexp(1)
        return (logits.logsumexp(1) - right).sum() / (2 * len(S))
    if o.name == "multi-similarity-loss":
        far = torch.exp(-o.alpha * (S - o.lambda_)) * mask
        near = torch.exp(o.beta * (S - o.lambda_)) * ~mask
        both = (1 + far.sum(1)).log() / o.alpha + (1 + near.sum(1)).log() / o.beta
        return both.sum() / (2 * len(S))
    assert o.name == "smooth-ap"
    above = ((S[:, None, :] - S[:, :, None]) / o.tau).sigmoid()  # candidates x candidates
    above = above * ~torch.eye(S.shape[1], dtype=torch.bool)
    precision = (1 + (above * mask[:, None]).sum(2)) / (1 + above.sum(2))
    return (1 - (precision * mask).sum(1) / mask.sum(1)).sum() / (2 * len(S))


WRITTEN = [o for o in POTENTIALS if o.name in reference.LOOPS and not getattr(o, "released", False)]


@pytest.mark.parametrize("case", CASES[:3], ids=[c.name for c in CASES[:3]])
@pytest.mark.parametrize("o", WRITTEN, ids=names(WRITTEN))
def test_weights_equal_autograd_of_the_written_out_loss(o: Objective, case: Case) -> None:
    S = case.S.clone().requires_grad_()
    learned = [p for p in o.parameters() if p.requires_grad]
    loss = _written_out(o, S, case.mask) + _written_out(o, S.T, case.mask.T)
    expected = torch.autograd.grad(loss, [S, *learned])
    ours = o.on(S, case.positives)
    got = torch.autograd.grad(ours, [S, *learned])
    torch.testing.assert_close(ours, loss)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    weights = o.weigh(case.S, case.positives)
    torch.testing.assert_close(weights.i2t + weights.t2i, got[0])


# A maximum has no derivative where two negatives are equally hard.
SMOOTH = [c for c in CASES if c.name not in ("ties", "duplicates")]


@pytest.mark.parametrize("case", SMOOTH, ids=[c.name for c in SMOOTH])
@pytest.mark.parametrize("o", POTENTIALS, ids=names(POTENTIALS))
def test_weights_equal_finite_differences(o: Objective, case: Case) -> None:
    offline, step = case.offline(o), 1e-6
    weights = o.weigh(case.S, case.positives, offline)
    direction = torch.randn(case.S.shape, generator=torch.Generator().manual_seed(0)).double()

    def value(t: float) -> float:
        return float(o.weigh(case.S + t * direction, case.positives, offline).value)

    slope = (value(step) - value(-step)) / (2 * step)
    expected = float(((weights.i2t + weights.t2i) * direction).sum())
    assert slope == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("field", range(4))
@pytest.mark.parametrize("spec", reference.OFFLINE)
def test_offline_weights_equal_finite_differences(spec: str, field: int) -> None:
    """Also through the adaptive weight, whose gradient must not be cut."""
    o, case, step = objective(spec), CASES[1], 1e-6
    offline = case.offline(o)
    assert offline is not None
    given = o.weigh(case.S, case.positives, offline).offline
    assert given is not None
    for k in range(len(offline[field])):

        def value(t: float, k: int = k) -> float:
            moved = [x.clone() for x in offline]
            moved[field][k] += t
            return float(o.weigh(case.S, case.positives, type(offline)(*moved)).value)

        slope = (value(step) - value(-step)) / (2 * step)
        assert slope == pytest.approx(float(given[field][k]), abs=1e-7)


def test_gradient_flows_through_the_adaptive_weight() -> None:
    """An offline negative far below the online one is pulled back: a negative derivative."""
    S = torch.tensor([[0.5, 0.6], [0.1, 0.9]]).double()
    low = [torch.full((2,), -0.5).double().requires_grad_() for _ in range(4)]
    o = objective("adap-off-quin")
    o.on(S, offline=type(CASES[0].offline(o))(*low)).backward()  # type: ignore[misc]
    # w = 1.5 - (mined - online) / 0.3; hinge of image 0: 0.2 - 0.5 + 0.6 = 0.3
    assert low[0].grad is not None
    torch.testing.assert_close(low[0].grad, torch.tensor([-1.0, 0.0]).double())


@each_case
def test_goal_con_con_is_the_hardest_triplet(case: Case) -> None:
    cell = Goal(triplet="con", pair="con", margin=0.3).weigh(case.S, case.positives)
    hardest = TripletSH(margin=0.3).weigh(case.S, case.positives)
    for one, other in zip(cell[:3], hardest[:3], strict=True):
        torch.testing.assert_close(one, other)


def test_goal_circle_is_proportional_to_circles_gradient() -> None:
    """Circle with m = 0 and optima 1 and 0, over the hardest negative: factor 2 tau."""
    case, tau = CASES[0], 10.0
    S = case.S.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for one, mask in ((S, case.mask), (S.T, case.mask.T)):
        negative = one.masked_fill(mask, -torch.inf).max(1).values
        own = one.diagonal()
        total = total + torch.log1p(torch.exp(tau * (negative**2 - own * (2 - own)))).sum()
    total.backward()
    weights = objective("circle(tau=10)").weigh(case.S)
    assert S.grad is not None
    torch.testing.assert_close((weights.i2t + weights.t2i) * 2 * tau, S.grad)


@pytest.mark.parametrize("name", ["circle", "binomial-deviance", "multi-similarity", "nca"])
def test_aliases_are_cells_of_goal(name: str) -> None:
    cells = {
        "circle": ("cir", "lin"),
        "binomial-deviance": ("con", "sig"),
        "multi-similarity": ("con", "sig-ms"),
        "nca": ("nca", "con"),
    }
    triplet, pair = cells[name]
    one = objective(name).weigh(CASES[0].S)
    other = Goal(triplet=triplet, pair=pair).weigh(CASES[0].S)
    torch.testing.assert_close(one.i2t, other.i2t, rtol=0, atol=0)


def test_goal_takes_functions() -> None:
    own = Goal(
        triplet=lambda p, n: torch.sigmoid(n - p),
        pair=lambda p, n: (torch.ones_like(p), torch.ones_like(n)),
    )
    case = CASES[1]
    one, other = own.weigh(case.S, case.positives), Goal("nca", "con").weigh(case.S, case.positives)
    torch.testing.assert_close(one.i2t, other.i2t)
    torch.testing.assert_close(one.t2i, other.t2i)


def test_goal_never_pulls_a_negative_however_steep() -> None:
    """m- of a lone rival far below the hardest is nearly 0: in float32, rounding is all of it."""
    o = Goal(triplet="con", pair="sig-ms", margin=4.0, epsilon=4.0, beta=50.0)
    S = 0.3 * torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    S[range(40), range(-1, 39)] += 0.6
    for some in torch.arange(40).split(4):
        weights = o.weigh(S[some][:, some])
        pushes = torch.stack([weights.i2t, weights.t2i])[:, ~torch.eye(4, dtype=torch.bool)]
        assert float(pushes.min()) >= 0


def test_goals_formulas_take_a_grid_of_triplets() -> None:
    """As one draws them: similarities of positives down, of negatives across."""
    down, across = torch.linspace(-1, 1, 3)[:, None], torch.linspace(-1, 1, 4)[None]
    for triplet in ("con", "nca", "cir"):
        o = Goal(triplet=triplet)
        grid = o.triplet_weight(down, across)
        full = o.triplet_weight(down.expand(3, 4), across.expand(3, 4))
        torch.testing.assert_close(grid, full, rtol=0, atol=0)


@pytest.mark.parametrize("spec", ["nt-xent(tau=0.37)", "smooth-ap(tau=0.37)"])
def test_another_default_device_leaves_no_trace(spec: str) -> None:
    with torch.device("meta"):
        first = objective(spec).affine()[0]
    assert first is not None
    assert first.device.type == "cpu"
    x, y = torch.rand(2, 5, 4)
    S = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(y).t()
    torch.testing.assert_close(objective(spec)(x, y), objective(spec).on(S))


def test_learned_temperature_does_not_fall_below_a_hundredth() -> None:
    with pytest.raises(InputError, match=r"at least 0\.01.*tau is 0\.005"):
        NTXent(tau=0.005, learned=True)
    o, fixed = NTXent(tau=0.02, learned=True), NTXent(tau=0.01)
    with torch.no_grad():
        o.log_scale.fill_(6.0)  # where a step may lead
    torch.testing.assert_close(o.weigh(CASES[0].S).i2t, fixed.weigh(CASES[0].S).i2t)


def test_learned_temperature_comes_back_from_its_end() -> None:
    """CLIP's checkpoints stand there: a scale that was cut off had no gradient for ever."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 16, 8)
    o = NTXent(learned=True)
    assert o.start_at(100.0, 0.0)
    optimizer = torch.optim.SGD(o.parameters(), 1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        o(x, y).backward()  # hard data: a lower scale is better
        optimizer.step()
    assert float(o.log_scale.detach().exp()) < 60


def test_siglip_not_learned_gives_its_scale_no_gradient() -> None:
    o = SigLIP(learned=False)
    o.on(CASES[0].S.clone().requires_grad_()).backward()
    assert o.log_scale.grad is None
    assert o.bias.grad is None
