"""The printed kernels, run on a CPU by Triton's interpreter, give what PyTorch gives."""

import math
import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from simgrad.analysis import check
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
    "multi-similarity-loss",
    "nca-loss",
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


def worked_by_kernels(
    work: Callable[[], list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Tensor], int]:
    """What it gives, and how often it asked a kernel."""
    calls: list[object] = []
    real = fused.FusedTiles.first
    with monkeypatch.context() as patch:
        patch.setattr(fused.FusedTiles, "first", lambda *given: [calls.append(0), real(*given)][1])
        return work(), len(calls)


def equal(o: Objective, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls = worked_by_kernels(lambda: gradients(o, name), monkeypatch)
    assert calls
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
    runpy.run_path(str(DEBIASED))
    yield objective("test-debiased(prior=0.05)")
    del objectives._declared["test-debiased"]


def written_out(S: Tensor, tau: float, prior: float) -> Tensor:
    """Debiased NT-Xent of one direction, as its paper has it."""
    own, count = (S.diagonal() / tau).exp(), len(S) - 1
    negatives = (S / tau).exp().sum(1) - own
    estimate = (negatives - count * prior * own) / (1 - prior)
    limited = estimate.clamp(min=count * math.exp(-1 / tau))
    assert 0 < int((estimate < limited).sum()) < len(S)  # some queries are at the limit
    return -(own / (own + limited)).log().mean()


@pytest.mark.usefixtures("interpreter")
def test_a_family_of_ones_own_is_dense_blocked_and_fused(
    debiased: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declared outside, in the form of `family.py`: nothing in the engine knows of it."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(37, 20, generator=generator) for _ in range(2))
    y[:9] += 3 * x[:9]  # so alike that the estimate of their negatives is less than its limit
    x, y = x.requires_grad_(), y.requires_grad_()

    def found(loss: Tensor) -> list[Tensor]:
        return [loss.detach(), *torch.autograd.grad(loss, [x, y])]

    similarities = normalize(x) @ normalize(y).T
    halves = (written_out(S, 0.1, 0.05) / 2 for S in (similarities, similarities.T))
    expected = found(sum(halves, torch.zeros(())))
    ways = {"dense": found(debiased.on(normalize(x) @ normalize(y).T))}
    ways["fused"], calls = worked_by_kernels(lambda: found(debiased(x, y)), monkeypatch)
    assert calls
    monkeypatch.setattr(fused, "INTERPRETED", False)
    ways |= {f"blocks of {n}": found(debiased(x, y, block=n)) for n in (40, 400)}
    ways["one block"] = found(debiased(x, y))
    for way, parts in ways.items():
        for one, other in zip(parts, expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-3, atol=2e-5), way


def test_a_family_of_ones_own_passes_the_check(debiased: Objective) -> None:
    generator = torch.Generator().manual_seed(0)
    found = check(debiased, *(torch.randn(19, 8, generator=generator) for _ in range(2)))
    assert found.ok, str(found)
    assert found.is_loss, str(found)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_family_of_ones_own_on_a_gpu(debiased: Objective) -> None:
    """Both branches of the rule, and no query between: there one rounding decides by a factor of
    hundreds, and one row is most of the gradient."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(8192, 64, generator=generator) for _ in range(2))
    y -= (x * y).sum(1, keepdim=True) / x.square().sum(1, keepdim=True) * x  # estimates far above
    y[:9] += 3 * x[:9]  # and far below the limit
    x, y = (v.cuda().requires_grad_() for v in (x, y))
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
