"""What the fused kernels take for granted of memory, precision and rules; emulated on a CPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives import NTXent, Objective, fused, objective, tensors

from .emulated import stand_in, without_a_gpu


def _results(o: Objective, positives: Tensor | None = None) -> list[Tensor]:
    """300 texts: more than two tiles."""
    generator = torch.Generator().manual_seed(0)
    images, kind = 300 if positives is None else int(positives.max()) + 1, torch.float32
    x, y = (
        torch.randn(n, 8, generator=generator, dtype=kind).requires_grad_() for n in (images, 300)
    )
    loss = o(x, y, positives)
    learned = [p for p in o.parameters() if p.requires_grad]
    return [loss.detach(), *torch.autograd.grad(loss, [x, y, *learned])]


def _check_same(got: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("spec", ["triplet-sh", "nt-xent", "siglip"])
def test_owners_that_lie_apart_in_memory(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a table is an index like any other."""
    stand_in(monkeypatch)
    without_a_gpu(monkeypatch, 128)
    o, index = objective(spec), torch.arange(300) % 110
    apart = torch.stack([index, index.flip(0)], 1)[:, 0]
    _check_same(_results(o, apart), _results(o, index))


@pytest.mark.parametrize("spec", ["triplet-sh", "nt-xent", "smooth-ap", "siglip"])
def test_summaries_are_exact_whatever_is_the_default(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of a negative is a summary too, and bfloat16 has not all numbers up to 300."""
    stand_in(monkeypatch)
    without_a_gpu(monkeypatch, 128)
    o = objective(spec)
    expected = _results(o)
    torch.set_default_dtype(torch.bfloat16)
    try:
        got = _results(o)
    finally:
        torch.set_default_dtype(torch.float32)
    _check_same(got, expected)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_of_products_on_a_gpu(
    dtype: torch.dtype, autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients in float64 take no products in half precision, nor does autocast make some."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: autocast)
    half = dtype.itemsize == 2 or (dtype == torch.float32 and autocast)
    x: Any = SimpleNamespace(is_cuda=True, dtype=dtype)
    assert tensors.product_type(x) == (torch.bfloat16 if half else dtype)


@pytest.mark.parametrize("name", ["summarise", "merge", "spread"])
def test_a_subclass_that_sees_negatives_otherwise_has_no_kernels(name: str) -> None:
    own = getattr(NTXent, name)
    assert type("Own", (NTXent,), {name: own}).tile is None
    assert type("Own", (NTXent,), {name: own, "tile": "softmax"}).tile == "softmax"
    assert type("Own", (NTXent,), {"judge": NTXent.judge}).tile == "softmax"


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [8, 9, 64, 130, 1000])
@pytest.mark.parametrize("spec", ["nt-xent", "triplet-sh", "smooth-ap(tau=0.1)", "siglip"])
def test_vectors_of_any_width(
    spec: str, width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrower than a tile, and rows of which each begins elsewhere; several blocks, and one."""
    pytest.importorskip("triton")
    o = objective(spec).to("cuda")
    generator = torch.Generator().manual_seed(0)
    given = [
        torch.randn(300, width, generator=generator).to("cuda", dtype).requires_grad_()
        for _ in range(2)
    ]

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(o(*given), given)

    torch.set_float32_matmul_precision("high")
    try:
        plain = gradients()
        monkeypatch.setattr(fused, "_LEAST", 1)
        in_one = gradients()
        monkeypatch.setattr(fused, "_BLOCK", 300 * 128 * dtype.itemsize)
        in_blocks = gradients()
    finally:
        torch.set_float32_matmul_precision("highest")
    stream = o.stream()
    assert stream is not None
    assert stream.tile not in gpu._broken
    for got in (in_one, in_blocks):
        for one, other in zip(got, plain, strict=True):
            # A similarity that is rounded otherwise may choose another hardest negative.
            assert (one.double() - other.double()).norm() <= 0.1 * other.double().norm()


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("spec", ["nt-xent(learned=true)", "triplet-sh", "siglip"])
def test_float64_inside_autocast(spec: str) -> None:
    o = objective(spec).to("cuda")
    given = [torch.randn(40, 8, device="cuda", dtype=torch.float64).requires_grad_() for _ in "xy"]
    expected = torch.autograd.grad(o(*given), given)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        got = torch.autograd.grad(o(*given), given)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
