"""The most similar candidates of every image and caption, exactly, from one matrix product.

A block of captions is multiplied with all images.

- Caption -> image: a row of the block is complete. Its largest entries are found in two cheap
  steps instead of one dear one: the row is cut into groups, the groups with the `keep` largest
  maxima are kept (no other group can hold one of the `keep` largest entries), and only their
  members are ranked.
- Image -> caption: the columns go on through all blocks. Each remembers its best so far, and only
  what exceeds the last of these is looked at: much in the first blocks, little after them.

In half precision (on a GPU) the survivors are scored again in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from simgrad.data.candidates import Lists

# Entries of a block of similarities: 32 MiB on a CPU, 2 GiB of half precision on a GPU.
_BLOCK = {"cpu": 2**23, "cuda": 2**30}
# Half precision may swap neighbours at the cut: keep a few more, and drop them after re-scoring.
_SLACK = 24
_RUN = 8  # rows whose maximum is compared before they are
_CROWD = 4  # times as many as are kept: too many finds of a block in one column


class Found(NamedTuple):
    """The best candidates of every query, most similar first."""

    rows: Lists  # (queries, depth), -1 where there are none
    scores: npt.NDArray[np.float32] | None  # -inf there


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

    def lists(self, values: Tensor, where: Tensor, count: int) -> Found:
        """Sorted candidates cut."""
        values, where = (part[:, self.skip : self.skip + self.depth] for part in (values, where))
        values = values.float()
        if self.floor is not None:
            values = values.masked_fill(values < self.floor, -torch.inf)
        # Small numbers leave a GPU sooner.
        where = where.to(torch.int32).masked_fill_(values == -torch.inf, -1)
        wide = max(0, min(self.depth, count) - where.shape[1])
        rows = pad(where, (0, wide), value=-1).cpu().numpy()
        scores = pad(values, (0, wide), value=-torch.inf).cpu().numpy() if self.scores else None
        return Found(rows, scores)


def both_ways(
    x: Tensor,
    y: Tensor,
    owner: Tensor,
    ceilings: tuple[Tensor | None, Tensor | None],
    cut: Cut,
) -> tuple[Found, Found]:
    """Lists of every image x (captions) and of every caption y (images).

    `owner` is each caption's image. Nothing more similar than a query's ceiling is kept.
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
    t2i = []
    for a in range(0, m, rows):
        b = min(a + rows, m)
        scores = room[: b - a + (a - b) % _RUN]
        torch.mm(left[a:b], right.t(), out=scores[: b - a])
        scores[b - a :] = -torch.inf
        scores[:, n:] = -torch.inf
        scores[torch.arange(b - a, device=x.device), owner[a:b]] = -torch.inf
        columns.add(scores, a)
        scores = scores[: b - a]
        if ceilings[1] is not None:
            scores.masked_fill_(scores > ceilings[1][a:b, None], -torch.inf)
        values, where = largest(scores, keep)
        if cut.half:
            bound = None if ceilings[1] is None else ceilings[1][a:b]
            values, where = _score_again(y[a:b], x, values, where, bound)
        t2i.append(cut.lists(values, where, n))
    values, where = columns.finish()
    if cut.half:
        values, where = _score_again(x, y, values, where, ceilings[0])
    return cut.lists(values, where, m), joined(t2i)


def joined(parts: Sequence[Found]) -> Found:
    """The lists of blocks of queries, one after the other."""
    scores = [part.scores for part in parts if part.scores is not None]
    rows = np.concatenate([part.rows for part in parts])
    return Found(rows, np.concatenate(scores) if scores else None)


class _Columns:
    """The largest entries of every column, over blocks of rows."""

    def __init__(self, count: int, keep: int, like: Tensor, bound: Tensor | None) -> None:
        self.count, self.keep = count, keep
        self.bound = bound  # nothing above it is kept
        self.values = like.new_full((count, keep), -torch.inf)  # sorted
        self.where = torch.zeros((count, keep), dtype=torch.int64, device=like.device)
        # Found since the last merge: columns, rows, values; and how many in each column.
        self.found: list[tuple[Tensor, Tensor, Tensor]] = []
        self.waiting = torch.zeros(count, dtype=torch.int64, device=like.device)

    def add(self, scores: Tensor, start: int) -> None:
        """Look at a block, of which row 0 is row `start` of all."""
        scores = scores[:, : self.count]
        if self.bound is not None:
            scores = scores.masked_fill(scores > self.bound, -torch.inf)
        threshold = self.values[:, -1]
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
        values, where = largest(scores.t().contiguous(), min(self.keep, len(scores)))
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
        self.values, order = torch.cat([self.values, values], 1).topk(self.keep)
        self.where = torch.cat([self.where, where], 1).gather(1, order)

    def finish(self) -> tuple[Tensor, Tensor]:
        """(columns, keep) values, largest first, and their rows."""
        if self.found:
            self._merge_found()
        return self.values, self.where


def _group(count: int, keep: int) -> int:
    """How many entries a group has: near sqrt(count / keep), where both steps cost the same."""
    group = 1
    while 2 * group * group * keep <= count:
        group *= 2
    return group


def largest(scores: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """`torch.topk(scores, keep)` by way of group maxima; several times faster for long rows.

    Group g holds the entries g, g + groups, g + 2 * groups, ...: neighbours in memory belong to
    neighbouring groups, which is the order in which a GPU reads fastest.
    """
    rows, count = scores.shape
    group = _group(count, keep)
    if group < 4:
        values, where = scores.topk(keep)
        return values, where
    groups = count // group
    whole = scores[:, : groups * group].view(rows, group, groups)
    kept = min(keep, groups)
    chosen = whole.amax(1).topk(kept, sorted=False).indices  # (rows, kept)
    members = whole.gather(2, chosen[:, None].expand(-1, group, -1)).view(rows, -1)
    if groups * group < count:  # what the groups left over
        members = torch.cat([members, scores[:, groups * group :]], 1)
    values, where = members.topk(keep)
    # Member k of the chosen ones is the (k // kept)-th of group chosen[k % kept].
    place = chosen.gather(1, where % kept) + where // kept * groups
    rest = where - group * kept
    return values, torch.where(rest < 0, place, rest + groups * group)


def _score_again(
    queries: Tensor, candidates: Tensor, coarse: Tensor, where: Tensor, ceiling: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The survivors' scores in float32, sorted; what rounding had put below the ceiling goes."""
    values = torch.empty_like(coarse, dtype=torch.float32)
    where = where.clamp(max=len(candidates) - 1)  # padding is marked by its score
    step = max(1, 2**28 // (where.shape[1] * candidates.shape[1]))
    for a in range(0, len(queries), step):
        chosen = candidates[where[a : a + step]]  # (rows, keep, d)
        values[a : a + step] = torch.einsum("rkd,rd->rk", chosen, queries[a : a + step])
    values.masked_fill_(coarse == -torch.inf, -torch.inf)
    if ceiling is not None:
        values.masked_fill_(values > ceiling[:, None], -torch.inf)
    values, order = values.sort(1, descending=True)
    return values, where.gather(1, order)
