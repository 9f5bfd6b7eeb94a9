"""The most similar candidates of every image and caption, exactly, from one matrix product.

A block of captions is multiplied with all images.

- Caption -> image: a row of the block is complete. Its largest entries are found in two cheap
  steps instead of one dear one: the row is cut into groups, the groups with the `keep` largest
  maxima are kept (no other group can hold one of the `keep` largest entries), and only their
  members are ranked.
- Image -> caption: the columns go on through all blocks. Each remembers its best so far, and only
  what exceeds the last of these is looked at: much in the first blocks, little after them.

In half precision (on a GPU) the survivors are scored again in float32. Lists leave a GPU while it
works on the next block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from simgrad.data.candidates import Lists
from simgrad.mining.rescoring import score_again

# Entries of a block of similarities: 32 MiB on a CPU, 2 GiB of half precision on a GPU.
_BLOCK = {"cpu": 2**23, "cuda": 2**30}
# Half precision may swap neighbours at the cut: keep a few more, and drop them after re-scoring.
_SLACK = 24
_RUN = 8  # rows whose maximum is compared before they are
_CROWD = 4  # times as many as are kept: too many finds of a block in one column


class LargestScores(NamedTuple):
    """The best candidates of every query, most similar first."""

    rows: Lists  # (queries, depth), -1 where there are none
    scores: npt.NDArray[np.float32] | None  # -inf there


class Own(NamedTuple):
    """The own pairs, which are no negatives; in the order of their captions."""

    image: Tensor  # (pairs,)
    caption: Tensor  # (pairs,)

    @staticmethod
    def of_captions(owner: Tensor) -> "Own":
        """From each caption's image; -1: it has none."""
        caption = (owner >= 0).nonzero()[:, 0]
        return Own(owner[caption], caption)


@dataclass(frozen=True)
class Cut:
    """What of a sorted list is kept."""

    depth: int
    skip: int = 0
    floor: float | None = None  # nothing below it
    half: bool = False
    scores: bool = False  # say how similar they are

    def keep(self, count: int) -> int:
        """How many of `count` candidates are looked for."""
        return min(self.depth + self.skip + (_SLACK if self.half else 0), count)

    def lists(self, values: Tensor, where: Tensor, count: int) -> LargestScores:
        """Sorted candidates cut."""
        rows, *scores = (part.cpu().numpy() for part in self.parts(values, where, count))
        return LargestScores(rows, scores[0] if scores else None)

    def parts(self, values: Tensor, where: Tensor, count: int) -> list[Tensor]:
        """The same, rows and where asked for scores, still where they were computed."""
        values, where = (part[:, self.skip : self.skip + self.depth] for part in (values, where))
        values = values.float()
        if self.floor is not None:
            values = values.masked_fill(values < self.floor, -torch.inf)
        # Small numbers leave a GPU sooner.
        where = where.to(torch.int32).masked_fill_(values == -torch.inf, -1)
        wide = max(0, min(self.depth, count) - where.shape[1])
        rows = pad(where, (0, wide), value=-1)
        return [rows, pad(values, (0, wide), value=-torch.inf)] if self.scores else [rows]


def both_ways(
    x: Tensor,
    y: Tensor,
    pairs: Own,
    ceilings: tuple[Tensor | None, Tensor | None],
    cut: Cut,
) -> tuple[LargestScores, LargestScores]:
    """Lists of every image x (captions) and of every caption y (images).

    Nothing more similar than a query's ceiling is kept.
    """
    n, m = len(x), len(y)
    keep = cut.keep(n)
    left, right = (e.half() if cut.half else e for e in (y, x))
    # Rows of a round length: tensor cores need them aligned, and groups leave no rest.
    step = 8 * _group(n, keep)
    right = pad(right, (0, 0, 0, -n % step))
    rows = max(1, _BLOCK.get(x.device.type, 2**23) // len(right) // _RUN) * _RUN
    room = left.new_empty(min(rows, m + -m % _RUN), len(right))  # the same memory for every block
    columns = _Columns(n, cut.keep(m), room, ceilings[0])
    i2t, t2i = _Whole(n, m, cut), _Whole(m, n, cut)
    edges = torch.arange(0, m + rows, rows, device=x.device)
    firsts = torch.searchsorted(pairs.caption, edges).tolist()  # of each block's pairs
    for a in range(0, m, rows):
        b = min(a + rows, m)
        here = slice(firsts[a // rows], firsts[a // rows + 1])
        scores = room[: b - a + (a - b) % _RUN]
        torch.mm(left[a:b], right.t(), out=scores[: b - a])
        scores[b - a :] = -torch.inf
        scores[:, n:] = -torch.inf
        scores[pairs.caption[here] - a, pairs.image[here]] = -torch.inf
        columns.add(scores, a)
        scores = scores[: b - a]
        ceiling = None if ceilings[1] is None else ceilings[1][a:b]
        if ceiling is not None:
            scores.masked_fill_(scores > ceiling[:, None], -torch.inf)
        values, where = largest(scores, keep, in_order=not cut.half)
        if cut.half:
            values, where = score_again(y[a:b], x, values, where, ceiling)
        t2i.put(a, cut.parts(values, where, n))
    values, where = columns.finish(in_order=not cut.half)
    for a in range(0, n, rows):
        part = slice(a, a + rows)
        found = values[part], where[part]
        if cut.half:
            ceiling = None if ceilings[0] is None else ceilings[0][part]
            found = score_again(x[part], y, *found, ceiling)
        i2t.put(a, cut.parts(*found, m))
    return i2t.lists(), t2i.lists()


class _Whole:
    """The lists of all queries, filled block by block.

    A GPU writes a block's lists to a buffer of its own accord. From there they go to their place
    when it has the next block to work on, so neither waits for the other.
    """

    def __init__(self, queries: int, candidates: int, cut: Cut) -> None:
        shape = queries, min(cut.depth, candidates)
        self.tables: list[npt.NDArray[Any]] = [np.empty(shape, np.int32)]
        if cut.scores:
            self.tables.append(np.empty(shape, np.float32))
        self.leaving: tuple[slice, list[Tensor], torch.cuda.Event] | None = None

    def put(self, start: int, parts: list[Tensor]) -> None:
        """Lists of the queries from `start` on."""
        place = slice(start, start + len(parts[0]))
        if not parts[0].is_cuda:
            self._place(place, [part.cpu() for part in parts])
            return
        self._settle()
        buffers = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in parts]
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.copy_(part, non_blocking=True)
        event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()  # type: ignore[no-untyped-call]
        self.leaving = place, buffers, event

    def _settle(self) -> None:
        if self.leaving is not None:
            place, buffers, event = self.leaving
            event.synchronize()  # type: ignore[no-untyped-call]
            self._place(place, buffers)
            self.leaving = None

    def _place(self, place: slice, parts: list[Tensor]) -> None:
        for table, part in zip(self.tables, parts, strict=True):
            table[place] = part.numpy()

    def lists(self) -> LargestScores:
        """All of them."""
        self._settle()
        rows, *scores = self.tables
        return LargestScores(rows, scores[0] if scores else None)


def joined(parts: Sequence[LargestScores]) -> LargestScores:
    """The lists of blocks of queries, one after the other."""
    scores = [part.scores for part in parts if part.scores is not None]
    rows = np.concatenate([part.rows for part in parts])
    return LargestScores(rows, np.concatenate(scores) if scores else None)


class _Columns:
    """The largest entries of every column, over blocks of rows."""

    def __init__(self, count: int, keep: int, like: Tensor, bound: Tensor | None) -> None:
        self.count, self.keep = count, keep
        self.bound = bound  # nothing above it is kept
        self.values = like.new_full((count, keep), -torch.inf)
        self.least = self.values[:, -1]  # (columns,) of what is kept
        self.where = torch.zeros((count, keep), dtype=torch.int64, device=like.device)
        # Found since the last merge: columns, rows, values; and how many in each column.
        self.found: list[tuple[Tensor, Tensor, Tensor]] = []
        self.waiting = torch.zeros(count, dtype=torch.int64, device=like.device)

    def add(self, scores: Tensor, start: int) -> None:
        """Look at a block, of which row 0 is row `start` of all."""
        scores = scores[:, : self.count]
        if self.bound is not None:
            scores = scores.masked_fill(scores > self.bound, -torch.inf)
        threshold = self.least
        runs = scores.view(-1, _RUN, self.count)
        above = runs.amax(1) > threshold
        if 2 * int(above.sum()) > above.numel():  # a first block, or one that is better than all
            self._merge_all(scores, start)
            return
        run, column = above.nonzero(as_tuple=True)
        members = runs[run, :, column]  # (found, _RUN)
        hit, place = (members > threshold[column, None]).nonzero(as_tuple=True)
        column = column[hit]
        hits = torch.bincount(column, minlength=self.count)
        # Merging makes a table as wide as the column with the most: captions in an order of their
        # own, by topic, would make it as large as the block.
        if int(hits.max()) > _CROWD * self.keep:
            self._merge_all(scores, start)
            return
        self.found.append((column, start + run[hit] * _RUN + place, members[hit, place]))
        self.waiting += hits
        if int(self.waiting.max()) > self.keep:
            self._merge_found()

    def _merge_all(self, scores: Tensor, start: int) -> None:
        """Put the best of a block beside what was kept."""
        every = scores.t().contiguous()
        values, where = largest(every, min(self.keep, len(scores)), in_order=False)
        self._merge(values, start + where)

    def _merge_found(self) -> None:
        """Put what was found beside what was kept, column by column."""
        column, row, value = (torch.cat(parts) for parts in zip(*self.found, strict=True))
        order = column.argsort()
        column = column[order]
        first = self.waiting.cumsum(0) - self.waiting
        place = torch.arange(len(column), device=column.device) - first[column]
        values = self.values.new_full((self.count, int(self.waiting.max())), -torch.inf)
        where = torch.zeros_like(values, dtype=torch.int64)
        values[column, place] = value[order]
        where[column, place] = row[order]
        self._merge(values, where)
        self.found.clear()
        self.waiting.zero_()

    def _merge(self, values: Tensor, where: Tensor) -> None:
        self.values, order = torch.cat([self.values, values], 1).topk(self.keep, sorted=False)
        self.where = torch.cat([self.where, where], 1).gather(1, order)
        self.least = self.values.amin(1)

    def finish(self, in_order: bool) -> tuple[Tensor, Tensor]:
        """(columns, keep) values, largest first if wanted, and their rows."""
        if self.found:
            self._merge_found()
        if not in_order:
            return self.values, self.where
        values, order = self.values.sort(1, descending=True)
        return values, self.where.gather(1, order)


def _group(count: int, keep: int) -> int:
    """How many entries a group has: near sqrt(count / keep), where both steps cost the same."""
    group = 1
    while 2 * group * group * keep <= count:
        group *= 2
    return group


def largest(scores: Tensor, keep: int, in_order: bool = True) -> tuple[Tensor, Tensor]:
    """`torch.topk(scores, keep)` by way of group maxima; several times faster for long rows.

    Group g holds the entries g, g + groups, g + 2 * groups, ...: neighbours in memory belong to
    neighbouring groups, which is the order in which a GPU reads fastest.
    """
    rows, count = scores.shape
    group = _group(count, keep)
    if group < 4:
        values, where = scores.topk(keep, sorted=in_order)
        return values, where
    groups = count // group
    whole = scores[:, : groups * group].view(rows, group, groups)
    kept = min(keep, groups)
    chosen = whole.amax(1).topk(kept, sorted=False).indices  # (rows, kept)
    members = whole.gather(2, chosen[:, None].expand(-1, group, -1)).view(rows, -1)
    if groups * group < count:  # what the groups left over
        members = torch.cat([members, scores[:, groups * group :]], 1)
    values, where = members.topk(keep, sorted=in_order)
    # Member k of the chosen ones is the (k // kept)-th of group chosen[k % kept].
    place = chosen.gather(1, where % kept) + where // kept * groups
    rest = where - group * kept
    return values, torch.where(rest < 0, place, rest + groups * group)
