"""Texts that pass by from process to process: a batch that lies on several of them.

Every process keeps its images. The shards of texts go round: at each step a process works on one
shard and hands it on. What was added to a shard (totals of its caption queries, gradients of its
texts) goes with it, and is home after a whole round. So each process does its part of the work and
holds its share of the batch and one shard more. What does not change of a shard is already on its
way while it is worked on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from simgrad.objectives.engine.passes import Hardest, Lines, Shard
from simgrad.objectives.engine.totals import Totals
from simgrad.objectives.engine.work import Factor, Work, factors_of
from simgrad.objectives.positives import Positives


class Transport(Protocol):
    """What a ring needs of the processes."""

    rank: int
    size: int

    def gather(self, rows: Tensor) -> list[Tensor]:
        """(k, ...) of every process; k may differ."""

    def sum(self, numbers: Tensor) -> Tensor:
        """Over all processes."""

    def start(self, sent: Sequence[Tensor], like: Sequence[Tensor]) -> "Handover":
        """Hand tensors on, and take over as many, of the shapes of `like`."""


class Handover(Protocol):
    """Tensors on their way."""

    def wait(self) -> list[Tensor]:
        """What arrived."""


class Processes:
    """The processes of a torch.distributed group."""

    def __init__(self, group: "dist.ProcessGroup | None" = None) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def gather(self, rows: Tensor) -> list[Tensor]:
        counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(self.size)]
        dist.all_gather(counts, counts[0].new_tensor([len(rows)]), group=self.group)
        sizes = [int(c) for c in counts]
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(found, padded, group=self.group)
        return [part[:size] for part, size in zip(found, sizes, strict=True)]

    def sum(self, numbers: Tensor) -> Tensor:
        total = numbers.clone()
        dist.all_reduce(total, group=self.group)
        return total

    def start(self, sent: Sequence[Tensor], like: Sequence[Tensor]) -> "_Requests":
        received = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in like]
        kept = [x.contiguous() for x in sent]
        to, source = (self._peer(self.rank + step) for step in (-1, 1))
        jobs = [dist.P2POp(dist.isend, x, to, self.group) for x in kept]
        jobs += [dist.P2POp(dist.irecv, x, source, self.group) for x in received]
        return _Requests(dist.batch_isend_irecv(jobs) if jobs else [], received, kept)

    def _peer(self, rank: int) -> int:
        rank %= self.size
        return rank if self.group is None else dist.get_global_rank(self.group, rank)


class _Requests:
    def __init__(
        self, requests: list[dist.Work], received: list[Tensor], kept: list[Tensor]
    ) -> None:
        self.requests, self.received = requests, received
        self.kept = kept  # until they have been sent

    def wait(self) -> list[Tensor]:
        for request in self.requests:
            request.wait()
        return self.received


class Ring:
    """Shards of all processes, one after the other: first one's own, then those of the next."""

    alone = False

    def __init__(self, transport: Transport, pairs: Positives, per_pair: bool) -> None:
        """`per_pair`: where a caption may have several images or none, lines are its pairs."""
        self.transport, (i2t, t2i) = transport, (pairs.i2t, pairs.t2i)
        counting = [
            len(torch.unique(side.query)) if side.orphans else side.queries for side in (i2t, t2i)
        ]
        numbers = [i2t.queries, t2i.queries, len(t2i.query), int(t2i.one_each), *counting]
        gathered = transport.gather(torch.tensor([numbers], device=i2t.query.device))
        # Of each process; last, queries with a share of the mean.
        self.images, self.texts, self.pairs, one_each, *self.counting = torch.cat(
            gathered
        ).T.tolist()
        # What travels has one form: that of all processes, not of the own share.
        self.one_each = all(one_each)
        self.lines = self.pairs if per_pair and not self.one_each else self.texts
        self.first_image = sum(self.images[: transport.rank])
        self.first_text = sum(self.texts[: transport.rank])

    def among(self, pairs: Positives) -> Positives:
        """The pairs here, with the candidates of the other processes."""
        i2t = replace(pairs.i2t, elsewhere=sum(self.texts) - pairs.i2t.candidates)
        t2i = replace(
            pairs.t2i,
            elsewhere=sum(self.images) - pairs.t2i.candidates,
            one_each=self.one_each,
        )
        return replace(pairs, i2t=i2t, t2i=t2i)

    def factors(self, work: Work) -> tuple[Factor, Factor]:
        if work.above is not None:
            return work.factors
        images, texts = (max(1, sum(counting)) for counting in self.counting)
        return factors_of(work.rule, (0.5 / images, 0.5 / texts))

    def gathered(self, rows: Tensor) -> Tensor:
        return torch.cat(self.transport.gather(rows))

    def summed(self, numbers: Tensor) -> Tensor:
        return self.transport.sum(numbers)

    def visit(self, shard: Shard, *, totals: bool, gradient: bool) -> Iterator[Shard]:
        """Every shard once. What is added to its totals or gradient is home when all were seen."""
        transport, guest = self.transport, shard
        # Queries may be silent elsewhere: factors travel as one number for each line.
        ones = torch.ones_like(shard.gradient[:1, 0]).expand(shard.lines.count)
        shard.lines.factor = shard.lines.factor * ones
        for step in range(transport.size):
            last = step + 1 == transport.size
            owner = (transport.rank + step + 1) % transport.size  # of the shard that comes next
            fixed = {} if last else _fixed(guest)
            coming = self._start(fixed, owner)
            yield guest
            changed = _changed(guest, totals, gradient)
            arrived = dict(zip(changed, self._start(changed, owner).wait(), strict=True))
            if last:
                _put(shard, arrived)
            else:
                guest = self._guest(shard, dict(zip(fixed, coming.wait(), strict=True)), owner)
                _put(guest, arrived)

    def _start(self, parts: dict[str, Tensor], owner: int) -> Handover:
        """Hand parts of a shard on; those of another process's come, which may be larger."""
        counts = {
            "texts": self.texts[owner],
            "lines": self.lines[owner],
            "pairs": self.pairs[owner],
        }
        like = [
            part.new_empty((counts[_PER[name.rstrip("0123456789")]], *part.shape[1:]))
            for name, part in parts.items()
        ]
        return self.transport.start(list(parts.values()), like)

    def _guest(self, home: Shard, fixed: dict[str, Tensor], owner: int) -> Shard:
        texts, told = fixed["texts"], _several(fixed, "told")
        totals = Totals(home.lines.totals.kinds)
        lines = Lines(self.lines[owner], fixed.get("query"), told, fixed["factor"], totals)
        gradient = torch.zeros_like(texts, dtype=home.gradient.dtype)
        hardest = _several(fixed, "hardest")
        found = Hardest(*hardest) if hardest else None
        return Shard(texts, sum(self.texts[:owner]), False, lines, gradient, found)


# What there is one of: a text, a line of a caption query, or a pair.
_PER = {
    "texts": "texts", "gradient": "texts", "told": "lines", "factor": "lines", "query": "lines",
    "totals": "lines", "where": "lines", "hardest": "pairs",
}  # fmt: skip


def _fixed(shard: Shard) -> dict[str, Tensor]:
    """What does not change while a shard goes round."""
    assert isinstance(shard.lines.factor, Tensor)
    parts = {"texts": shard.texts, "factor": shard.lines.factor}
    parts |= {f"told{k}": told for k, told in enumerate(shard.lines.told)}
    if shard.lines.query is not None:
        parts["query"] = shard.lines.query
    if shard.hardest is not None:
        parts |= {f"hardest{k}": p for k, p in enumerate(shard.hardest) if p is not None}
    return parts


def _changed(shard: Shard, totals: bool, gradient: bool) -> dict[str, Tensor]:
    """What was added to."""
    parts: dict[str, Tensor] = {}
    if totals:
        parts |= {f"totals{k}": total for k, total in enumerate(shard.lines.totals.values)}
        if shard.lines.totals.where is not None:
            parts["where"] = shard.lines.totals.where
    return parts | ({"gradient": shard.gradient} if gradient else {})


def _put(shard: Shard, parts: dict[str, Tensor]) -> None:
    """The inverse of `_changed`."""
    if "totals0" in parts:
        shard.lines.totals.values = list(_several(parts, "totals"))
        shard.lines.totals.where = parts.get("where")
    shard.gradient = parts.get("gradient", shard.gradient)


def _several(parts: dict[str, Tensor], name: str) -> tuple[Tensor, ...]:
    return tuple(part for key, part in parts.items() if key.rstrip("0123456789") == name)
