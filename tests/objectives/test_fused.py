"""The printed kernels, run on a CPU by Triton's interpreter, give what PyTorch gives."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from simgrad.core.extras import import_file
from simgrad.objectives import Family, NTXent, Objective, Offline, objective, objectives
from simgrad.objectives.engine import fused
from simgrad.objectives.engine.printing import Printer, Unprintable, print_totals

pytest.importorskip("triton")

SPECS = [
    "nt-xent",
    "nt-xent(tau=0.01)",  # exponentials need their maxima
    "nt-xent(tau=0.1, learned=true)",
    "triplet",
    "triplet-sh",
    "smooth-ap",
    "smooth-ap(tau=0.005)",
    "siglip",
    "goal(triplet=con, pair=sig)",
    "goal(triplet=nca, pair=lin-ms)",
    "goal(triplet=cir, pair=sig-ms)",
    "goal(triplet=con, pair=sig-ms, beta=80, released=true)",
    "adap-off-quin",
]
DEBIASED = Path(__file__).parent / "outside_family.py"


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels are compiled here, not interpreted (tests/conftest.py)")
    monkeypatch.setattr(fused, "INTERPRETED", True)


def batches() -> dict[str, tuple[int, int, Tensor | None, Tensor | None]]:
    """Images, captions, positives, and pairs to ignore; no number is a multiple of a tile's."""
    index = torch.arange(43) % 37
    orphans = index.clone()
    orphans[[2, 41]] = -1  # of images that have another caption
    shared = torch.arange(37)[:, None] == index[None]
    shared[0, 20] = True
    few = torch.tensor([[0, 3], [0, 4], [36, 0], [20, 30]])
    return {
        "square": (37, 37, None, None),
        "captions": (37, 43, index, None),
        "nobody's captions": (37, 43, orphans, None),
        "mask": (37, 43, shared, None),
        "ignored": (37, 37, None, few),
    }


def gradients(o: Objective, name: str) -> list[Tensor]:
    images, texts, positives, ignore = batches()[name]
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(n, 20, generator=generator).requires_grad_() for n in (images, texts))
    offline = Offline(*torch.rand(4, texts, generator=generator)) if o.needs_offline else None
    loss = o(x, y, positives, offline, ignore=ignore)
    learned = [p for p in o.parameters() if p.requires_grad]
    return [loss.detach(), *torch.autograd.grad(loss, [x, y, *learned])]


def equal(o: Objective, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    real = fused.FusedTiles.first
    with monkeypatch.context() as patch:
        patch.setattr(
            fused.FusedTiles, "first", lambda *given: [printed.append(0), real(*given)][1]
        )
        found = gradients(o, name)
    assert printed  # it was kernels that worked
    monkeypatch.setattr(fused, "INTERPRETED", False)
    for one, other in zip(found, gradients(o, name), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.usefixtures("interpreter")
def test_kernels_give_what_operations_give(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    equal(objective(spec), "square", monkeypatch)


@pytest.mark.parametrize("name", [name for name in batches() if name != "square"])
@pytest.mark.parametrize("spec", ["nt-xent", "siglip", "goal(triplet=cir, pair=sig-ms)"])
@pytest.mark.usefixtures("interpreter")
def test_whatever_the_pairs(spec: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    equal(objective(spec), name, monkeypatch)


@pytest.fixture
def debiased() -> Iterator[Objective]:
    """An objective that a user declares in a file of his own."""
    import_file(DEBIASED)
    yield objective("test-debiased(prior=0.05)")
    del objectives._declared["test-debiased"]


def test_a_family_of_ones_own_is_short() -> None:
    assert len(DEBIASED.read_text().splitlines()) <= 25


@pytest.mark.usefixtures("interpreter")
def test_a_family_of_ones_own_is_dense_blocked_and_fused(
    debiased: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declared outside, in the form of `family.py`: nothing in the engine knows of it."""
    equal(debiased, "square", monkeypatch)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(19, 8, generator=generator).double().requires_grad_() for _ in range(2))
    units = (torch.nn.functional.normalize(v, dim=1) for v in (x, y))
    images, texts = units
    dense = torch.autograd.grad(debiased.on(images @ texts.T), [x, y])
    for block in (None, 40, 100):
        found = torch.autograd.grad(debiased(x, y, block=block), [x, y])
        torch.testing.assert_close(found, dense)
    from simgrad.analysis import check

    found = check(debiased, x, y)
    assert found.ok, str(found)
    assert found.is_loss, str(found)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_family_of_ones_own_on_a_gpu(debiased: Objective) -> None:
    x, y = (torch.randn(8192, 64, device="cuda").requires_grad_() for _ in range(2))
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        work = debiased(x, y)
        found = torch.autograd.grad(work, [x, y])
        plain = torch.autograd.grad(debiased(x, y, block=2**24), [x, y])
    finally:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert fused._kernels  # it was kernels that worked
    for one, other in zip(found, plain, strict=True):
        cosine = torch.cosine_similarity(one.flatten(), other.flatten(), dim=0)
        assert cosine > 0.999


def test_what_cannot_be_printed_is_worked_without_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Odd(NTXent):
        def terms(self, s: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            return (torch.special.i0(s) * 0 + s,)

    with pytest.raises(Unprintable, match="i0"):
        print_totals(Odd(), (), Printer(None), False, True)


def test_formulas_are_shared_by_both_directions() -> None:
    """A bounded softmax has one exponential over the tile; so have SmoothAP's two sigmoids."""
    for spec, told, bound in (("nt-xent", (), 10.0), ("smooth-ap", (False,), 100.0)):
        family = objective(spec).elementwise()
        assert isinstance(family, Family)
        printer = Printer(bound)
        print_totals(family, told, printer, spec == "nt-xent", True)
        over_tile = [line for line in printer.lines if "exp(" in line and " s)" in line]
        assert len(over_tile) <= 1
