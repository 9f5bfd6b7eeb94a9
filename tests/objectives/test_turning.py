"""Vectors of one length, and the way back, in one pass: what PyTorch's operations give."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives import embeddings, objective, turning

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton, and TRITON_INTERPRET=1"
)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
HALF, SINGLE = torch.bfloat16, torch.float32


def _plain(given: Tensor, scale: Tensor, kind: torch.dtype) -> Any:
    return embeddings._Lengths(given.clone(), scale, kind)


@interpreted
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("dtype", "kind"), [(SINGLE, SINGLE), (SINGLE, HALF), (HALF, HALF)])
def test_interpreted_lengths(dtype: torch.dtype, kind: torch.dtype, known: bool) -> None:
    from simgrad.objectives.passes import lengthen

    given, scale = torch.randn(10, 24).to(dtype), torch.tensor(3.0, requires_grad=not known)
    given[4] = 0
    expected = _plain(given, scale, kind)
    unit, norms, divisors = torch.empty(10, 24), torch.empty(10), torch.empty(10)
    used = unit if kind == SINGLE else torch.empty(10, 24, dtype=kind)
    lengthen[(3,)](
        given, unit, used, norms, divisors, 3.0 if known else scale.detach(), 10, 24, 1e-12,
        ROUNDED=kind != SINGLE, KNOWN=known, DOWN=4, ACROSS=32,
    )  # fmt: skip
    torch.testing.assert_close(unit, expected.unit)
    torch.testing.assert_close(used, expected.used)
    torch.testing.assert_close(norms, expected.norms[:, 0])
    torch.testing.assert_close(divisors, expected.divisors[:, 0])


@interpreted
@pytest.mark.parametrize("known", [True, False])
def test_interpreted_way_back(known: bool) -> None:
    from simgrad.objectives.passes import turn

    g, u = torch.randn(2, 10, 24).unbind()
    divisors, along, scale = torch.rand(10) + 1, torch.empty(10), torch.tensor(3.0)
    divisors[4] = torch.inf  # of a vector of length 0
    products = (g * u).sum(1)
    expected = (g - u * (products / scale)[:, None]) / divisors[:, None]
    given = 3.0 if known else scale
    turn[(3,)](g, u, divisors, along, given, 10, 24, KNOWN=known, DOWN=4, ACROSS=32)
    torch.testing.assert_close(g, expected)
    torch.testing.assert_close(along, products)


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", [SINGLE, HALF, torch.float16])
@pytest.mark.parametrize("spec", ["triplet-sh", "nt-xent(learned=true)", "nt-xent"])
def test_one_pass_equals_several(
    spec: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    o = objective(spec).to("cuda")
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(2, 301, 72, generator=generator).to("cuda", dtype)

    def gradients() -> tuple[Tensor, ...]:
        x, y = (v.clone().requires_grad_() for v in given)
        loss = o(x, y)
        return torch.autograd.grad(loss, [x, y, *o.parameters()])

    plain = gradients()
    monkeypatch.setattr(gpu, "_ran", set())
    monkeypatch.setattr(turning, "_MANY", 1)
    got = gradients()
    assert {"turn", "lengthen"}.isdisjoint(gpu._broken)
    ran = {call[0] for call in gpu._ran if isinstance(call, tuple)}
    assert ran == ({"turn"} if dtype == torch.float16 else {"turn", "lengthen"})
    for one, other in zip(got, plain, strict=True):
        # A rounded vector may choose another hardest negative.
        assert (one.double() - other.double()).norm() <= 0.01 * other.double().norm() + 1e-6


def test_a_cpu_takes_the_operations_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turning, "_MANY", 1)
    x = torch.randn(5, 4)
    assert turning.turn(x, x, x[:, :1], 1.0) is None
    assert turning.lengthen(x, 1.0, SINGLE, 1e-12) is None


@pytest.mark.parametrize("spec", ["nt-xent(learned=true)", "siglip", "triplet-sh"])
def test_what_the_way_back_returns_is_enough(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's contract, by PyTorch: in place, and the products as they are."""

    def turned(gradients: Tensor, unit: Tensor, divisors: Tensor, scale: Any) -> Tensor:
        along = (gradients * unit).sum(1, keepdim=True)
        gradients.sub_(unit * (along / scale)).div_(divisors)
        return along

    torch.manual_seed(0)
    o, x, y = objective(spec), *(torch.randn(9, 6, requires_grad=True) for _ in range(2))
    given = [x, y, *o.parameters()]
    plain = torch.autograd.grad(o(x, y), given)
    monkeypatch.setattr(embeddings, "turn", turned)
    for one, other in zip(torch.autograd.grad(o(x, y), given), plain, strict=True):
        torch.testing.assert_close(one, other)


def test_kernels_that_do_not_run_leave_vectors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_broken", set())
    monkeypatch.setattr(turning, "_suits", lambda _x, _scale, call: call[0] not in gpu._broken)
    x, y = (torch.randn(5, 4, requires_grad=True) for _ in range(2))
    o = objective("nt-xent")
    with pytest.warns(UserWarning, match="do not run here"):
        first = torch.autograd.grad(o(x, y), [x, y])
    assert gpu._broken == {"turn", "lengthen"}
    for one, other in zip(first, torch.autograd.grad(o(x, y), [x, y]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
