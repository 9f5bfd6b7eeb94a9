"""Blocks of similarities with PyTorch, one operation after the other: any device."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.engine.forms import Elementwise, Vectors
from simgrad.objectives.engine.passes import Add, Block, Lines, Shard, expands
from simgrad.objectives.engine.totals import Reduced, beside, is_bounded, reduce
from simgrad.objectives.engine.work import Factor, Work

# How many similarities a block holds: 3 MiB on a CPU, where several temporaries must stay near the
# caches; 256 MiB on a GPU, where larger products are faster.
_BLOCK = {"cpu": 3 * 2**18, "cuda": 2**26}
# Up to how many a batch is one block, whose similarities are made once: 4 MiB and 1 GiB.
_WHOLE = {"cpu": 2**20, "cuda": 2**28}


# Up to how many the terms that become weights are kept as well: 4 and 64 MiB each.
_TERMS = {"cpu": 2**20, "cuda": 2**24}


class Made(NamedTuple):
    """Of a block: its similarities, and the term that `pushing` names, of lines that are its rows
    and of those that are its columns."""

    S: Tensor
    of_rows: Tensor | None = None
    of_columns: Tensor | None = None


class PlainTiles:
    """The tiles of any device."""

    def __init__(self, work: Work, family: Elementwise) -> None:
        self.work, self.family = work, family
        self.expands = expands(family, work.pairs.i2t)
        self.one_sided, self.alone = False, True
        self.kept: Made | None = None  # of a batch that is one block
        self.bounded: bool | None = None

    def blocks(self, shard: Shard, weighing: bool) -> list[Block]:
        """Squares, about: a block then needs as few images and texts as can be."""
        i2t, kind = self.work.pairs.i2t, self.work.vectors.device.type
        rows, columns = i2t.queries, len(shard.texts)
        high = max(rows, len(i2t.query)) if self.expands else rows
        wide = max(columns, shard.lines.count)
        if high * wide <= (self.work.block or _WHOLE.get(kind, 2**20)):
            return [self._block(0, rows, 0, columns, shard)]
        size = self.work.block or _BLOCK.get(kind, 3 * 2**18)
        # Texts whose captions have several lines each are not parted.
        across = columns if shard.lines.query is not None else min(columns, math.isqrt(size) or 1)
        down = max(1, size * rows // (high * max(across, 1)))
        return [
            self._block(a, min(a + down, rows), b, min(b + across, columns), shard)
            for a in range(0, rows, down)
            for b in range(0, columns, across)
        ]

    def _block(self, top: int, bottom: int, left: int, right: int, shard: Shard) -> Block:
        rows, columns = slice(top, bottom), slice(left, right)
        row_lines = self.work.pairs.i2t.pairs_of(top, bottom) if self.expands else rows
        every = slice(0, shard.lines.count)
        return Block(rows, columns, row_lines, columns if shard.lines.query is None else every)

    def first(self, block: Block, rows: Lines, shard: Shard, add: Add) -> tuple[Reduced, Reduced]:
        S, kinds = self._negatives(block, shard), self.family.totals
        by_row, by_column = self._by_line(S, block, rows, shard)
        if self.bounded is None:
            scale, biased = self.work.scale, self.work.bias is not None
            self.bounded = is_bounded(self.family, len(rows.told), scale, biased)
        terms = self.family.terms(by_row, *_told(rows, block.row_lines, 1))
        exponentials = self._exponentials(terms)
        of_rows = reduce(kinds, terms, 1, exponentials)
        keeps = self.family.immediate or (
            self.alone and S.numel() <= _TERMS.get(S.device.type, 2**20)
        )
        pushing = self._pushing(terms) if keeps else None
        if self.one_sided:
            nothing = S.new_zeros(S.shape[1])
            of_columns = Reduced(tuple(nothing for _ in kinds), None)
            add(block, shard, self._weights(Made(S, pushing, pushing), block, rows, shard))
            return of_rows, of_columns
        if rows.told or by_column is not by_row:  # the same terms serve both directions otherwise
            terms = self.family.terms(by_column, *_told(shard.lines, block.column_lines, 0))
            exponentials = self._exponentials(terms)
        of_columns = reduce(kinds, terms, 0, exponentials)
        made = Made(S, pushing, self._pushing(terms) if keeps else None)
        if self.family.immediate:
            add(block, shard, self._weights(made, block, rows, shard))
            return of_rows, of_columns
        whole = self.work.pairs.i2t.queries, len(self.work.texts)
        if shard.own and tuple(S.shape) == whole:
            self.kept = made
        return of_rows, of_columns

    def second(self, block: Block, rows: Lines, shard: Shard) -> Tensor:
        made = self.kept if shard.own else None
        return self._weights(made or Made(self._negatives(block, shard)), block, rows, shard)

    def _weights(self, made: Made, block: Block, rows: Lines, shard: Shard) -> Tensor:
        """Of both directions, on all pairs of the block's images and texts."""
        S = made.S
        by_row, by_column = self._by_line(S, block, rows, shard)
        weights, factor = self._push(by_row, made.of_rows, rows, block.row_lines, 1)
        if not rows.told and by_column is by_row:
            other = _factor(shard.lines, block.column_lines, 0)
            return weights.mul_(factor + other)
        weights = _collected(weights.mul_(factor), rows, block, S, 0)
        more, other = self._push(by_column, made.of_columns, shard.lines, block.column_lines, 0)
        if by_column is not S:
            return weights.add_(_collected(more.mul_(other), shard.lines, block, S, 1))
        if isinstance(other, Tensor):
            return weights.addcmul_(more, other)
        return weights.add_(more, alpha=other)

    def _push(
        self, s: Tensor, made: Tensor | None, lines: Lines, some: slice, dim: int
    ) -> tuple[Tensor, Factor]:
        """Weights of one direction, and what they are to be multiplied with."""
        family, told, factor = self.family, _told(lines, some, dim), _factor(lines, some, dim)
        if family.pushing is None:
            return family.push(s, *told), factor
        if not family.immediate:
            told, factor = told[:-1], told[-1] * factor
        if made is None:
            made = family.terms(s, *told)[family.pushing]
        return made.to(s.dtype), factor

    def _pushing(self, terms: Vectors) -> Tensor | None:
        return None if self.family.pushing is None else terms[self.family.pushing]

    def _by_line(self, S: Tensor, block: Block, rows: Lines, shard: Shard) -> tuple[Tensor, Tensor]:
        """Similarities, a row for each line of the images and a column for each of the texts."""
        by_row, by_column = S, S
        if rows.query is not None:
            by_row = S[rows.query[block.row_lines] - block.rows.start]
        if shard.lines.query is not None:
            by_column = S[:, shard.lines.query]
        return by_row, by_column

    def _exponentials(self, terms: Vectors) -> list[Tensor] | None:
        if not self.bounded:
            return None
        kinds = self.family.totals
        return [t.exp() if k == "logsumexp" else t for k, t in zip(kinds, terms, strict=True)]

    def _negatives(self, block: Block, shard: Shard) -> Tensor:
        """A block of similarities, -inf where there is no negative."""
        work, top, left = self.work, block.rows.start, block.columns.start
        S = work.similarities(work.images[block.rows], shard.texts[block.columns])
        present = work.pairs.i2t.present
        if present is not None:
            S.masked_fill_(~present[block.rows, None], -torch.inf)
        if not shard.own:
            return S
        if work.pairs.order is None:
            S.diagonal(top - left).fill_(-torch.inf)
        else:
            i2t = work.pairs.i2t
            some = i2t.pairs_of(top, block.rows.stop)
            self._exclude(S, i2t.query[some], i2t.candidate[some], block)
        ignored = work.pairs.i2t.ignored
        if ignored is not None:
            self._exclude(S, ignored[:, 0], ignored[:, 1], block)
        return S

    def _exclude(self, S: Tensor, image: Tensor, caption: Tensor, block: Block) -> None:
        """In place: -inf for the pairs that lie in the block."""
        row, column = image - block.rows.start, caption - block.columns.start
        if tuple(S.shape) != (self.work.count, len(self.work.texts)):
            here = (row >= 0) & (row < S.shape[0]) & (column >= 0) & (column < S.shape[1])
            row, column = row[here], column[here]
        # A value that is filled in, not copied: a CUDA graph can hold that.
        S.index_put_((row, column), S.new_full((), -torch.inf))


def _told(lines: Lines, some: slice, dim: int) -> Vectors:
    return beside(tuple(t[some] for t in lines.told), dim)


def _factor(lines: Lines, some: slice, dim: int) -> Factor:
    """A number, or one for every line beside the similarities."""
    factor = lines.factor
    if isinstance(factor, Tensor) and factor.dim():
        return beside((factor[some],), dim)[0]
    return factor


def _collected(weights: Tensor, lines: Lines, block: Block, S: Tensor, dim: int) -> Tensor:
    """Weights of a query's lines added up."""
    if lines.query is None:
        return weights
    query = lines.query[block.row_lines] - block.rows.start if dim == 0 else lines.query
    return torch.zeros_like(S).index_add_(dim, query, weights)
