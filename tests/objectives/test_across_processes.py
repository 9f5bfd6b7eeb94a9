"""A batch that lies on several processes: loss and gradients of one process on all of it."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import simgrad
from simgrad.core.errors import InputError
from simgrad.objectives import Objective, Offline, objective

from .cases import everything
from .processes import Workers

IMAGES, CAPTIONS = 14, 23
SHARES = {1: [14], 2: [9, 5], 3: [7, 1, 6], 4: [5, 1, 3, 5]}
WORLD = 4


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers(WORLD)
    yield found
    found.stop()


def _last(world: int) -> "dist.ProcessGroup | None":
    """A group of the last processes, where ranks of the group are not those of all; None: all."""
    return None if world == WORLD else dist.new_group(list(range(WORLD - world, WORLD)))


class Shares:
    """A batch in uneven shares, several captions an image; some captions are nobody's, and some
    pairs are to be ignored."""

    def __init__(self, world: int, kind: torch.dtype, orphans: bool, ignores: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(IMAGES, 6, generator=generator, dtype=torch.float64).to(kind)
        self.y = torch.randn(CAPTIONS, 6, generator=generator, dtype=torch.float64).to(kind)
        self.images, more = SHARES[world], CAPTIONS - IMAGES
        self.positives, self.ignored = [], []
        for rank, count in enumerate(self.images):
            extra = more - (world - 1) * (more // world) if rank == 0 else more // world
            index = torch.tensor([*range(count), *(7 * k % count for k in range(extra))])
            if orphans:
                index[-1] = -1 if extra else index[-1]
            self.positives.append(index)
            pairs = [
                (i, c)
                for i in range(count)
                for c in range(len(index))
                if ignores and (3 * i + c) % 5 == 0 and int(index[c]) != i
            ]
            self.ignored.append(torch.tensor(pairs, dtype=torch.long).reshape(-1, 2))
        self.captions = [len(index) for index in self.positives]

    def first(self, rank: int) -> tuple[int, int]:
        return sum(self.images[:rank]), sum(self.captions[:rank])

    def whole(self) -> tuple[Tensor, Tensor]:
        """Positives and ignored pairs of the whole batch."""
        index = [torch.where(p < 0, p, p + self.first(r)[0]) for r, p in enumerate(self.positives)]
        ignored = [p + torch.tensor(self.first(r)) for r, p in enumerate(self.ignored)]
        return torch.cat(index), torch.cat(ignored)


def _offline(o: Objective, shares: Shares, rank: int | None) -> Offline | None:
    if not o.needs_offline:
        return None
    counts = [int((index >= 0).sum()) for index in shares.positives]
    generator = torch.Generator().manual_seed(1)
    four = torch.rand(4, sum(counts), generator=generator, dtype=torch.float64).to(shares.x.dtype)
    if rank is None:
        return Offline(*four)
    start = sum(counts[:rank])
    return Offline(*(part[start : start + counts[rank]] for part in four))


def equal_to_one_process(world: int, kind: torch.dtype) -> None:
    group = _last(world)
    rank = dist.get_rank(group)
    if rank < 0:
        return  # not of the group
    tolerance = 1e-10 if kind == torch.float64 else 1e-5
    cells = {str(objective(f"goal(triplet=nca, pair={p})")) for p in ("con", "lin-ms", "sig-ms")}
    every = [o.to(kind) for o in everything() if o.name != "goal" or str(o) in cells]
    cases = [(False, False), (True, False), (True, True)]
    for orphans, ignores in cases if world == 3 else cases[::2]:
        shares = Shares(world, kind, orphans, ignores)
        positives, ignored = shares.whole()
        image, caption = shares.first(rank)
        mine = (
            slice(image, image + shares.images[rank]),
            slice(caption, caption + shares.captions[rank]),
        )
        for o in every:
            learned = [p for p in o.parameters() if p.requires_grad]
            x, y = (v.clone().requires_grad_() for v in (shares.x, shares.y))
            offline = _offline(o, shares, None)
            loss = o(x, y, positives, offline, ignore=ignored if ignores else None)
            expected = torch.autograd.grad(loss, [x, y, *learned])
            x, y = shares.x[mine[0]].clone(), shares.y[mine[1]].clone()
            ways = (("sum", 1), ("mean", world)) if o.name == "siglip" else (("mean", world),)
            for gradients, factor in ways:
                u, v = x.clone().requires_grad_(), y.clone().requires_grad_()
                spread = simgrad.distributed(o, group, gradients)
                drawn = _offline(o, shares, rank)
                ignore = shares.ignored[rank] if ignores else None
                found = spread(u, v, shares.positives[rank], drawn, ignore=ignore)
                got = torch.autograd.grad(found, [u, v, *learned])
                where = f"{o} {world} {orphans} {ignores}"
                close(found, loss, tolerance, where)
                close(got[0], factor * expected[0][mine[0]], tolerance, where)
                close(got[1], factor * expected[1][mine[1]], tolerance, where)
                for one, other in zip(got[2:], expected[2:], strict=True):
                    total = one.clone()  # what all processes share: a loop adds it up
                    dist.all_reduce(total, group=group)
                    close(total, factor * other, tolerance, where)


def close(one: Tensor, other: Tensor, tolerance: float, where: str) -> None:
    size = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
    error = float((one - other).detach().abs().max()) / size if other.numel() else 0.0
    assert error <= tolerance, f"{where}: {error}"


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_equal_to_one_process(world: int, workers: Workers) -> None:
    workers.run(equal_to_one_process, world, torch.float64)


def test_equal_to_one_process_in_float32(workers: Workers) -> None:
    workers.run(equal_to_one_process, 3, torch.float32)


def _work_of(call: Callable[[], Tensor]) -> int:
    """Floating-point operations in products, of a loss and its gradients."""
    # The counter knows products, but not those that are added to a tensor in place.
    added = {torch.ops.aten.addmm_: lambda to, a, b, **_: 2 * a[0] * a[1] * b[1]}
    with FlopCounterMode(display=False, custom_mapping=added) as counter:
        call().backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops()


def does_its_part(world: int) -> None:
    group = _last(world)
    if dist.get_rank(group) < 0:
        return  # not of the group
    n, width = 48, 16
    for spec in ("nt-xent", "triplet", "triplet-sh", "smooth-ap", "siglip", "goal"):
        o = objective(spec)
        x, y = (torch.randn(n, width).requires_grad_() for _ in range(2))
        ours = _work_of(partial(simgrad.distributed(o, group), x, y))
        x, y = (torch.randn(world * n, width).requires_grad_() for _ in range(2))
        # In blocks too: a batch in one piece keeps its similarities, which a ring cannot.
        one = _work_of(partial(o, x, y, block=n * n))
        assert one > 0
        assert ours <= 1.1 * one / world, f"{spec}: {ours / one}"


def test_each_process_does_its_part_of_the_work(workers: Workers) -> None:
    workers.run(does_its_part, 2)


def is_checked() -> None:
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    x, y = (torch.randn(5 + rank, 6, generator=generator).requires_grad_() for _ in range(2))
    index = torch.arange(5 + rank)
    simgrad.distributed("nt-xent", check=True)(x, y, index).backward()
    # A share that another process never sees: what one process makes of all of it is not this.
    spread = simgrad.distributed("nt-xent", check=True)
    real = spread.objective.forward
    spread.objective.forward = lambda *given, **named: 2 * real(*given, **named)  # type: ignore[method-assign]
    with pytest.raises(InputError, match="whole batch"):
        spread(x, y, index)


def test_a_wrong_gradient_is_found_by_the_check(workers: Workers) -> None:
    workers.run(is_checked)


def test_without_other_processes_it_is_the_objective_itself() -> None:
    x, y = (torch.randn(6, 5).requires_grad_() for _ in range(2))
    for gradients in ("mean", "sum"):
        spread = simgrad.distributed("siglip", gradients=gradients)  # type: ignore[arg-type]
        torch.testing.assert_close(spread(x, y), objective("siglip")(x, y))
    assert [name for name, _ in spread.named_parameters()] == [
        "objective.log_scale",
        "objective.bias",
    ]
    with pytest.raises(InputError, match="mean"):
        simgrad.distributed("siglip", gradients="average")  # type: ignore[arg-type]
