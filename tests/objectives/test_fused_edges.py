"""What the fused kernels take for granted of memory, precision and rules; emulated on a CPU."""

import pytest
import torch
from torch import Tensor

from simgrad.objectives import NTXent, Objective, objective

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


@pytest.mark.parametrize("name", ["summarise", "merge", "spread"])
def test_a_subclass_that_sees_negatives_otherwise_has_no_kernels(name: str) -> None:
    own = getattr(NTXent, name)
    assert type("Own", (NTXent,), {name: own}).tile is None
    assert type("Own", (NTXent,), {name: own, "tile": "softmax"}).tile == "softmax"
    assert type("Own", (NTXent,), {"judge": NTXent.judge}).tile == "softmax"
