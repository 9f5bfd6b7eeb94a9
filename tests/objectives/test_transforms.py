"""Under `torch.func` and forward-mode differentiation: the same derivatives, or a refusal."""

from functools import partial

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad

from simgrad.core.errors import InputError
from simgrad.objectives import Objective, Offline, objective
from simgrad.objectives.across_processes import Distributed

from .cases import everything, names
from .threads import Rank, run

# One of each kind: cells of GOAL differ in their numbers alone.
EVERYTHING = [o for o in everything() if o.name != "goal" or str(o) == str(objective("goal"))]
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
INDEX = torch.tensor([0, 1, 2, 3, 0, 2])


def _vectors() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 5, generator=generator).double() for n in (4, 6))
    return x, y, torch.rand(4, 6, generator=generator).double()  # offline, where it is needed


def _losses(o: Objective, four: Tensor) -> "dict[str, object]":
    offline = Offline(*four) if o.needs_offline else None
    return {
        "of vectors": lambda x, y: o(x, y, INDEX, offline),
        "of similarities": lambda x, y: o.on(x @ y.T / 10, INDEX, offline),
    }


@each_objective
def test_derivatives_are_those_of_backward(o: Objective) -> None:
    x, y, four = _vectors()
    o = o.to(torch.float64)
    generator = torch.Generator().manual_seed(1)
    toward = tuple(torch.randn(v.shape, generator=generator).double() for v in (x, y))
    for name, loss in _losses(o, four).items():
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        value = loss(a, b)  # type: ignore[operator]
        expected = torch.autograd.grad(value, (a, b))
        slope = sum((g * t).sum() for g, t in zip(expected, toward, strict=True))

        for way in (func.grad, func.jacrev):
            found = way(loss, argnums=(0, 1))(x, y)  # type: ignore[operator]
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, msg=lambda m: f"{name}: {m}")  # noqa: B023
        for primal, tangent in (func.jvp(loss, (x, y), toward), _dual(loss, (x, y), toward)):  # type: ignore[arg-type]
            torch.testing.assert_close(primal, value.detach())
            torch.testing.assert_close(tangent, slope)


def _dual(loss, given, toward):  # type: ignore[no-untyped-def]
    with forward_ad.dual_level():
        made = loss(*(forward_ad.make_dual(v, t) for v, t in zip(given, toward, strict=True)))
        return tuple(part.detach() for part in forward_ad.unpack_dual(made))


@pytest.mark.parametrize("spec", ["siglip", "nt-xent(learned=true)"])
def test_derivatives_by_what_is_learned(spec: str) -> None:
    """`functional_call` with other weights, as in meta-learning."""
    o, (x, y, _) = objective(spec).to(torch.float64), _vectors()
    given = dict(o.named_parameters())
    expected = torch.autograd.grad(o(x, y, INDEX), tuple(given.values()))

    def loss(weights: dict[str, Tensor]) -> Tensor:
        found: Tensor = func.functional_call(o, weights, (x, y, INDEX))
        return found

    plain = {name: weight.detach() for name, weight in given.items()}
    for one, other in zip(func.grad(loss)(plain).values(), expected, strict=True):
        torch.testing.assert_close(one, other)
    toward = {name: torch.full_like(weight, 2.0) for name, weight in plain.items()}
    slope = func.jvp(loss, (plain,), (toward,))[1]
    torch.testing.assert_close(slope, torch.stack([2 * g.sum() for g in expected]).sum())


def test_second_derivatives_are_refused_in_words() -> None:
    o, (x, y, _) = objective("nt-xent"), _vectors()
    loss = partial(o, texts=y, positives=INDEX)
    for ask in (
        lambda: func.hessian(loss)(x),
        lambda: func.jacrev(func.grad(loss))(x),
        lambda: func.jvp(func.grad(loss), (x,), (torch.ones_like(x),)),
    ):
        with pytest.raises(InputError, match="second derivatives"):
            ask()


def test_vmap_is_refused_in_words() -> None:
    o, (x, y, _) = objective("nt-xent"), _vectors()
    several, S = torch.stack([x, x]), torch.rand(3, 4, 4)
    for ask in (
        lambda: torch.vmap(lambda some: o(some, y, INDEX))(several),
        lambda: torch.vmap(func.grad(lambda some: o(some, y, INDEX)))(several),
        lambda: torch.vmap(o.on)(S),
        lambda: torch.vmap(o.weigh)(S),
    ):
        with pytest.raises(InputError, match="vmap"):
            ask()


def test_several_processes_refuse_in_words() -> None:
    x, y, _ = _vectors()

    def asked(rank: Rank) -> None:
        spread = Distributed(objective("nt-xent"), transport=rank)
        with pytest.raises(InputError, match="under torch"):
            func.grad(lambda a: spread(a, y, INDEX))(x)

    run(2, asked)
