"""Ranks that are threads of one process, on a CPU and on one GPU (see `threads.py`)."""

import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from simgrad.objectives import Objective, objective
from simgrad.objectives.across_processes import Distributed
from simgrad.objectives.engine import fused

from .shares import close, equal_to_one_process
from .threads import Rank, run

SPECS = ("nt-xent", "triplet", "triplet-sh", "smooth-ap", "siglip", "goal")
ON_A_GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    ],
)


@pytest.mark.long
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
def test_equal_to_one_process(device: str, world: int, kind: torch.dtype) -> None:
    run(world, partial(equal_to_one_process, kind=kind, device=device))


def _gradients(o: Objective, x: Tensor, y: Tensor) -> list[Tensor]:
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    learned = [p for p in o.parameters() if p.requires_grad]
    loss = o(x, y)
    return [loss.detach(), *torch.autograd.grad(loss, [x, y, *learned])]


def _spread(
    rank: Rank, spec: str, shares: list[int], x: Tensor, y: Tensor
) -> tuple[list[Tensor], int]:
    """Loss and gradients of a rank, and where its share begins."""
    first = sum(shares[: rank.rank])
    mine = slice(first, first + shares[rank.rank])
    o = Distributed(objective(spec).to(x.device), gradients="sum", transport=rank)
    x, y = x[mine].clone().requires_grad_(), y[mine].clone().requires_grad_()
    learned = [p for p in o.parameters() if p.requires_grad]
    loss = o(x, y)
    got = torch.autograd.grad(loss, [x, y, *learned])
    return [loss.detach(), *got[:2], *map(rank.sum, got[2:])], first


@pytest.mark.long
@pytest.mark.parametrize("shares", [[20, 37], [33, 0, 20]], ids=str)
@pytest.mark.parametrize("spec", ["nt-xent", "triplet", "siglip", "goal", "goal(pair=lin-ms)"])
def test_kernels_in_a_ring(spec: str, shares: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed kernels, interpreted: of all texts that pass by, also if some rank has none."""
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels are compiled here, not interpreted (tests/conftest.py)")
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(sum(shares), 20, generator=generator) for _ in range(2))
    expected = _gradients(objective(spec), x, y)
    monkeypatch.setattr(fused, "INTERPRETED", True)
    for found, first in run(len(shares), lambda rank: _spread(rank, spec, shares, x, y)):
        close(found[0], expected[0], 1e-5, spec)
        for one, whole in zip(found[1:3], expected[1:3], strict=True):
            close(one, whole[first : first + len(one)], 1e-5, spec)
        for one, whole in zip(found[3:], expected[3:], strict=True):
            close(one, whole, 1e-5, spec)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("spec", SPECS)
def test_kernels_in_a_ring_on_a_gpu(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that are large enough for kernels, in half precision."""
    calls: list[object] = []
    real = fused.FusedTiles.first
    monkeypatch.setattr(
        fused.FusedTiles, "first", lambda *given: [calls.append(0), real(*given)][1]
    )
    shares = [6000, 7001, 5900]
    generator = torch.Generator("cuda").manual_seed(0)
    y, noise = (torch.randn(sum(shares), 64, generator=generator, device="cuda") for _ in range(2))
    x, y = (y + 2 * noise).bfloat16(), y.bfloat16()
    expected = _gradients(objective(spec).cuda(), x, y)
    for found, first in run(len(shares), lambda rank: _spread(rank, spec, shares, x, y)):
        close(found[0], expected[0], 1e-4, spec)
        for one, whole in zip(found[1:3], expected[1:3], strict=True):
            some = whole[first : first + len(one)]
            error = (one - some).float().norm() / some.float().norm()
            assert error < 0.02, f"{spec}: {float(error)}"
    assert calls


def _work_of(call: Callable[[], Tensor]) -> int:
    """Floating-point operations in products, of a loss and its gradients."""
    # The counter knows products, but not those that are added to a tensor in place.
    added = {torch.ops.aten.addmm_: lambda to, a, b, **_: 2 * a[0] * a[1] * b[1]}
    with FlopCounterMode(display=False, custom_mapping=added) as counter:
        call().backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops()


class _Memory(TorchDispatchMode):
    """Bytes of the tensors that were made inside, the most there were at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        before = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if _is(x)}
        for x in filter(_is, tree_leaves(made)):
            storage = x.untyped_storage()
            if storage._cdata not in before | self.known:
                self._count(storage)
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        size, place = storage.nbytes(), storage._cdata
        self.known.add(place)
        self.now += size
        self.peak = max(self.peak, self.now)

        def gone() -> None:
            self.now -= size
            self.known.discard(place)

        weakref.finalize(storage, gone)


def _is(x: object) -> bool:
    return isinstance(x, Tensor)


def _memory_of(call: Callable[[], Tensor]) -> int:
    with _Memory() as memory:
        call().backward()  # type: ignore[no-untyped-call]
    return memory.peak


def _measured(spec: str, world: int, measure: Callable[..., int]) -> int:
    """Of the same batch in even shares, the most of any rank."""
    share, width = PAIRS // world, 64

    def one(rank: Rank) -> int:
        x, y = (torch.randn(share, width).requires_grad_() for _ in range(2))
        # In blocks too: a batch in one piece keeps its similarities, which a ring cannot.
        named = {"block": (PAIRS // 4) ** 2} if world == 1 else {}
        o = Distributed(objective(spec), transport=rank) if world > 1 else objective(spec)
        return measure(partial(o, x, y, **named))

    return max(run(world, one))


PAIRS = 96


@pytest.mark.parametrize("spec", SPECS)
def test_each_rank_does_its_part_of_the_work_and_holds_less(spec: str) -> None:
    work, memory = ([_measured(spec, n, m) for n in (1, 2, 3, 4)] for m in (_work_of, _memory_of))
    assert work[0] > 0
    for world, ours in enumerate(work, 1):
        assert ours <= 1.1 * work[0] / world, f"{world}: {ours / work[0]} of the work"
    # A rank holds its share, that of a guest, and one that is on its way.
    assert memory == sorted(memory, reverse=True), memory
    assert memory[3] <= 0.7 * memory[0], memory
