"""A batch in uneven shares, what one process makes of all of it, and what each of several makes."""

import torch
from torch import Tensor

from simgrad.objectives import Objective, Offline, objective
from simgrad.objectives.across_processes import Distributed
from simgrad.objectives.engine.ring import Transport

from .cases import everything

IMAGES, CAPTIONS = 14, 23
SHARES = {1: [14], 2: [9, 5], 3: [7, 1, 6], 4: [5, 1, 3, 5]}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
# Of the loss as of float32; gradients are rounded to half precision, some by one step more.
ROUNDING = 2.0**-7


class Shares:
    """A batch in uneven shares, several captions an image; some captions are nobody's, and some
    pairs are to be ignored."""

    def __init__(
        self, world: int, kind: torch.dtype, orphans: bool, ignores: bool, device: str = "cpu"
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        x, y = (
            torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (IMAGES, CAPTIONS)
        )
        self.x, self.y = x.to(device, kind), y.to(device, kind)
        self.images, more = SHARES[world], CAPTIONS - IMAGES
        self.positives, self.ignored = [], []
        for rank, count in enumerate(self.images):
            extra = more - (world - 1) * (more // world) if rank == 0 else more // world
            index = torch.tensor([*range(count), *(7 * k % count for k in range(extra))])
            if orphans and rank != 1:  # shares differ in form, too
                index[-1] = -1 if extra else index[-1]
            self.positives.append(index.to(device))
            pairs = [
                (i, c)
                for i in range(count)
                for c in range(len(index))
                if ignores and (3 * i + c) % 5 == 0 and int(index[c]) != i
            ]
            self.ignored.append(torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).to(device))
        self.captions = [len(index) for index in self.positives]

    def first(self, rank: int) -> tuple[int, int]:
        return sum(self.images[:rank]), sum(self.captions[:rank])

    def whole(self) -> tuple[Tensor, Tensor]:
        """Positives and ignored pairs of the whole batch."""
        index = [torch.where(p < 0, p, p + self.first(r)[0]) for r, p in enumerate(self.positives)]
        ignored = [p + p.new_tensor(self.first(r)) for r, p in enumerate(self.ignored)]
        return torch.cat(index), torch.cat(ignored)

    def offline(self, o: Objective, rank: int | None) -> Offline | None:
        if not o.needs_offline:
            return None
        counts = [int((index >= 0).sum()) for index in self.positives]
        generator = torch.Generator().manual_seed(1)
        four = torch.rand(4, sum(counts), generator=generator, dtype=torch.float64)
        four = four.to(self.x.device, self.x.dtype)
        if rank is None:
            return Offline(*four)
        start = sum(counts[:rank])
        return Offline(*(part[start : start + counts[rank]] for part in four))


def compared(kind: torch.dtype, device: str = "cpu") -> list[Objective]:
    """Every declared objective, of goal's cells some, and two of a user's own."""
    cells = {str(objective(f"goal(triplet=nca, pair={p})")) for p in ("con", "lin-ms", "sig-ms")}
    every = [o for o in everything() if o.name != "goal" or str(o) in cells]
    exact = torch.float64 if kind == torch.float64 else torch.float32
    return [o.to(device, exact) for o in every]


def equal_to_one_process(transport: Transport, kind: torch.dtype, device: str = "cpu") -> None:
    """On one of several ranks: loss and gradients are those of one process on the whole batch."""
    world, rank, tolerance = (
        transport.size,
        transport.rank,
        TOLERANCE.get(kind, TOLERANCE[torch.float32]),
    )
    on_gradients = ROUNDING if kind == torch.bfloat16 else tolerance
    cases = [(False, False), (True, False), (True, True)]
    every = compared(kind, device)
    for orphans, ignores in cases if world == 3 else cases[::2]:
        shares = Shares(world, kind, orphans, ignores, device)
        positives, ignored = shares.whole()
        image, caption = shares.first(rank)
        mine = (
            slice(image, image + shares.images[rank]),
            slice(caption, caption + shares.captions[rank]),
        )
        for o in every:
            learned = [p for p in o.parameters() if p.requires_grad]
            x, y = (v.clone().requires_grad_() for v in (shares.x, shares.y))
            offline = shares.offline(o, None)
            loss = o(x, y, positives, offline, ignore=ignored if ignores else None)
            expected = torch.autograd.grad(loss, [x, y, *learned])
            x, y = shares.x[mine[0]].clone(), shares.y[mine[1]].clone()
            ways = (("sum", 1), ("mean", world)) if o.name == "siglip" else (("mean", world),)
            for gradients, factor in ways:
                u, v = x.clone().requires_grad_(), y.clone().requires_grad_()
                spread = Distributed(o, gradients=gradients, transport=transport)  # type: ignore[arg-type]
                drawn = shares.offline(o, rank)
                ignore = shares.ignored[rank] if ignores else None
                found = spread(u, v, shares.positives[rank], drawn, ignore=ignore)
                got = torch.autograd.grad(found, [u, v, *learned])
                where = f"{o} {world} {orphans} {ignores}"
                close(found, loss, tolerance, where)
                close(got[0], factor * expected[0][mine[0]], on_gradients, where)
                close(got[1], factor * expected[1][mine[1]], on_gradients, where)
                for one, other in zip(got[2:], expected[2:], strict=True):
                    total = transport.sum(one)  # what all processes share: a loop adds it up
                    close(total, factor * other, on_gradients, where)


def close(one: Tensor, other: Tensor, tolerance: float, where: str) -> None:
    size = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
    error = float((one - other).detach().abs().max()) / size if other.numel() else 0.0
    assert error <= tolerance, f"{where}: {error}"
