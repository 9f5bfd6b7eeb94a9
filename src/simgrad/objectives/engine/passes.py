"""Both directions from one product of embeddings, for rules that are written elementwise.

1. The texts pass by, in blocks. A block of similarities serves both directions: its rows belong to
   image queries, its columns to caption queries. Their terms are added to the totals of either.
2. The totals are judged: values, and the weights on positives.
3. Where weights on negatives waited for this, the texts pass by once more. A block's weights, of
   both directions, are multiplied into the gradients of its images and texts.

That is three products for most rules, four for those that need step 3, and one for those that weigh
the hardest negative alone. With several processes, the texts of all of them pass by (`ring.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.forms import Elementwise, Vectors, Verdict
from simgrad.objectives.engine.tensors import add_product
from simgrad.objectives.engine.totals import Reduced, Totals
from simgrad.objectives.engine.work import Factor, Gradients, Work, add_rows, require_graded
from simgrad.objectives.pairs import Pairs
from simgrad.objectives.positives import Side


@dataclass
class Lines:
    """Queries of one direction; or their pairs, where each of several positives of a query sees
    its negatives by itself."""

    count: int
    query: Tensor | None  # (lines,) the query that a line belongs to; None: line k is query k
    told: Vectors  # each (lines,): what is known, and then what was judged
    factor: Factor  # of a line's weights: a number, or (lines,) where some are silent
    totals: Totals
    _stacked: tuple[Vectors, Tensor] | None = None

    @property
    def stacked(self) -> Tensor:
        """(told, lines) in one piece, as kernels read them."""
        if self._stacked is None or self._stacked[0] is not self.told:
            self._stacked = self.told, torch.stack([t.to(torch.float32) for t in self.told])
        return self._stacked[1]


class Hardest(NamedTuple):
    """Weights on the hardest negatives of some queries."""

    query: Tensor | None  # (entries,) number among the queries here; None: entry k is query k
    candidate: Tensor  # (entries,) number among all candidates
    weight: Tensor  # (entries,)


@dataclass
class Shard:
    """Texts that pass by, with what belongs to them."""

    texts: Tensor  # (texts, width)
    first: int  # the number of its first text among all
    own: bool  # whether positives of the images here are among them
    lines: Lines  # of its caption queries
    gradient: Tensor  # (texts, width)
    hardest: Hardest | None = None  # of its caption queries


class Passing(Protocol):
    """How texts pass by: one's own alone, or those of all processes."""

    first_image: int
    first_text: int
    alone: bool

    def visit(self, shard: Shard, *, totals: bool, gradient: bool) -> Iterator[Shard]:
        """Every shard once. What is added to its totals or gradient is home when all were seen."""

    def gathered(self, rows: Tensor) -> Tensor:
        """(k, ...) of every process, one after the other."""

    def summed(self, numbers: Tensor) -> Tensor:
        """The sum over all processes."""

    def factors(self, work: Work) -> tuple[Factor, Factor]:
        """What values and weights of an image query are multiplied with, and of a caption query."""


class Alone:
    """One process: its own texts pass by once."""

    first_image = 0
    first_text = 0
    alone = True

    def visit(self, shard: Shard, *, totals: bool, gradient: bool) -> Iterator[Shard]:
        yield shard

    def gathered(self, rows: Tensor) -> Tensor:
        return rows

    def summed(self, numbers: Tensor) -> Tensor:
        return numbers

    def factors(self, work: Work) -> tuple[Factor, Factor]:
        return work.factors


class Block(NamedTuple):
    """A part of the similarities: some images, some texts of a shard, and their lines."""

    rows: slice
    columns: slice
    row_lines: slice
    column_lines: slice


# Of a part of the similarities, its weights are added to the gradients.
Add = Callable[[Block, Shard, Tensor], None]


class Tiles(Protocol):
    """How a block of similarities is summed up and weighed."""

    one_sided: bool  # totals of the columns are not wanted: they may be anything
    alone: bool  # no texts of others pass by: there is room for what both sweeps need

    def blocks(self, shard: Shard, weighing: bool) -> list[Block]:
        """The parts that a shard is worked in; `weighing`: its weights are all that is made."""

    def first(self, block: Block, rows: Lines, shard: Shard, add: Add) -> tuple[Reduced, Reduced]:
        """Totals of its rows and of its columns. Weights that need no totals are added."""

    def second(self, block: Block, rows: Lines, shard: Shard) -> Tensor:
        """Its weights."""


def weigh_passes(work: Work, family: Elementwise, tiles: Tiles, passing: Passing) -> Gradients:
    """The three steps."""
    factors = passing.factors(work)
    tiles.alone = passing.alone
    for side in (work.pairs.i2t, work.pairs.t2i):
        require_graded(work.rule, side)
    even = all(part is None for part in (*work.silences, *work.heard))
    if family.symmetric and passing.alone and even:
        # The image queries stand for the caption queries as well, which count for nothing then.
        tiles.one_sided, factors = True, (factors[0] + factors[1], 0.0)
    pairs = joint(work, passing)
    vectors = torch.zeros_like(work.vectors, dtype=work.exact)  # gradients of images and texts
    if not len(pairs.of_batch):  # no positive on any process
        nothing = vectors.new_zeros(())
        values, bias = vectors.new_zeros(pairs.queries), None if work.bias is None else nothing
        return Gradients(nothing, values, vectors, work.outside, bias)
    images, texts = vectors[: work.count], vectors[work.count :]
    rows, columns = _lines(work, family, family.known(pairs), factors)
    shard = Shard(work.texts, passing.first_text, True, columns, texts)

    def add(block: Block, guest: Shard, weights: Tensor) -> None:
        used = weights.to(work.vectors.dtype)
        add_product(images[block.rows], used, guest.texts[block.columns])
        add_product(guest.gradient[block.columns], used.t(), work.images[block.rows])

    for guest in passing.visit(shard, totals=True, gradient=family.immediate):
        for block in tiles.blocks(guest, False):
            of_rows, of_columns = tiles.first(block, rows, guest, add)
            rows.totals.add(block.row_lines, rows.count, of_rows, guest.first + block.columns.start)
            first = passing.first_image + block.rows.start
            guest.lines.totals.add(block.column_lines, guest.lines.count, of_columns, first)

    verdict = family.judge(rows.totals.with_those_of(columns.totals), pairs)
    verdict = _heard(_silenced(verdict, work, pairs), work, pairs)
    if verdict.on_hardest is not None:
        _add_hardest(work, passing, verdict.on_hardest, factors, (rows, shard), images)
    elif not family.immediate:
        rows.told = tuple(g[: rows.count] for g in verdict.given)
        columns.told = tuple(g[rows.count :] for g in verdict.given)
        for guest in passing.visit(shard, totals=False, gradient=True):
            for block in tiles.blocks(guest, True):
                add(block, guest, tiles.second(block, rows, guest))
    if shard.gradient is not texts:
        texts.copy_(shard.gradient)  # it has been around, and is home again
    found = _finished(work, verdict, factors, rows.count, vectors)
    return found._replace(value=passing.summed(found.value))


def expands(family: Elementwise, side: Side) -> bool:
    """Whether lines are pairs."""
    return family.per_pair and not side.one_each


def joint(work: Work, passing: Passing) -> Pairs:
    """The pairs of both directions: those of the image queries, then of the caption queries."""
    i2t, t2i = work.pairs.i2t, work.pairs.t2i
    own = work.own(i2t, work.images, work.texts)
    one_each, outside = i2t.one_each and t2i.one_each, None
    if work.outside[0] is not None and work.outside[1] is not None:
        outside = torch.cat([work.outside[0], work.outside[1]])
    # Which pair belongs to whom is not asked where pair k belongs to query k.
    query = candidate = i2t.query
    if not one_each:
        query = torch.cat([i2t.query, t2i.query + i2t.queries])
        candidate = torch.cat([i2t.candidate, t2i.candidate])
    both = torch.cat([own, work.pairs.by_caption(own)])
    queries, grade = i2t.queries + t2i.queries, None
    if i2t.grade is not None or t2i.grade is not None:
        grade = _joined([i2t.grade, t2i.grade], (len(own), len(own)), own)
    of_batch = passing.gathered(own)
    return Pairs(query, candidate, both, queries, one_each, of_batch, outside, grade)


def _joined(parts: Sequence[Tensor | None], counts: tuple[int, int], like: Tensor) -> Tensor:
    """The image side's values, then the caption side's; None stands for ones."""
    both = zip(parts, counts, strict=True)
    return torch.cat([like.new_ones(n) if some is None else some.to(like) for some, n in both])


def _lines(
    work: Work, family: Elementwise, known: Vectors, factors: tuple[Factor, Factor]
) -> tuple[Lines, Lines]:
    found, start = [], 0
    for side, factor, silent, heard in zip(
        (work.pairs.i2t, work.pairs.t2i), factors, work.silences, work.heard, strict=True
    ):
        query = side.query if expands(family, side) else None
        count = side.queries if query is None else len(query)
        if silent is not None or heard is not None:
            loud = work.vectors.new_ones(side.queries, dtype=work.exact) if heard is None else heard
            loud = (loud if silent is None else loud.masked_fill(silent, 0)) * factor
            factor = loud if query is None else loud[query]
        if query is not None and side.grade is not None:
            factor = factor * side.grade.to(work.exact)
        told = tuple(k[start : start + count] for k in known)
        found.append(Lines(count, query, told, factor, Totals(family.totals)))
        start += count
    return found[0], found[1]


def _silenced(verdict: Verdict, work: Work, pairs: Pairs) -> Verdict:
    """A query without a negative contributes nothing, unless it has negatives elsewhere."""
    if all(silent is None for silent in work.silences):
        return verdict
    counts, device = (work.pairs.i2t.queries, work.pairs.t2i.queries), verdict.values.device
    silent = torch.cat(
        [
            torch.zeros(count, dtype=torch.bool, device=device) if some is None else some
            for some, count in zip(work.silences, counts, strict=True)
        ]
    )
    of_pair, on_hardest, pushed = pairs.per_pair(silent), verdict.on_hardest, verdict.pushed
    if pushed is not None:
        pushed = pushed.masked_fill(silent if len(pushed) == len(silent) else of_pair, 0)
    return verdict._replace(
        values=verdict.values.masked_fill(silent, 0),
        on_positive=verdict.on_positive.masked_fill(of_pair, 0),
        on_hardest=None if on_hardest is None else on_hardest.masked_fill(of_pair, 0),
        pushed=pushed,
    )


def _heard(verdict: Verdict, work: Work, pairs: Pairs) -> Verdict:
    """Queries whose pairs have weights count by these, and by what multiplies their values."""
    if all(part is None for part in work.heard):
        return verdict
    sides, values = (work.pairs.i2t, work.pairs.t2i), verdict.values
    counts = sides[0].queries, sides[1].queries
    each = _joined(work.heard, counts, values)
    of_pair, pushed = pairs.per_pair(each), verdict.pushed
    if pushed is not None:
        pushed = pushed * (each if len(pushed) == len(each) else pairs.graded(of_pair))
    on_hardest, outside = verdict.on_hardest, verdict.outside
    return verdict._replace(
        values=values * _joined([side.importance for side in sides], counts, values),
        on_positive=verdict.on_positive * of_pair,
        on_hardest=None if on_hardest is None else on_hardest * of_pair,
        outside=None if outside is None else outside * of_pair[:, None],
        pushed=pushed,
    )


def _add_hardest(
    work: Work,
    passing: Passing,
    weight: Tensor,  # (pairs of both directions,)
    factors: tuple[Factor, Factor],
    lines: tuple[Lines, Shard],
    on_images: Tensor,
) -> None:
    """The one negative of each pair, of the image queries and of the captions'."""
    (rows, shard), count = lines, work.pairs.count
    i2t, t2i = work.pairs.i2t, work.pairs.t2i
    own = _hardest(i2t, rows.totals, weight[:count] * factors[0], passing)
    shard.hardest = _hardest(t2i, shard.lines.totals, weight[count:] * factors[1], passing)
    for guest in passing.visit(shard, totals=False, gradient=True):
        assert guest.hardest is not None
        here, there = own, guest.hardest
        if not passing.alone:
            here = _within(here, guest.first, len(guest.texts))
            there = _within(there, passing.first_image, work.count)
        _add_entries(on_images, guest.gradient, work.images, guest.texts, here)
        _add_entries(guest.gradient, on_images, guest.texts, work.images, there)


def _hardest(side: Side, totals: Totals, weight: Tensor, passing: Passing) -> Hardest:
    assert totals.where is not None
    if side.one_each and passing.alone:
        return Hardest(None, totals.where, weight)
    return Hardest(side.query, totals.where[side.query], weight)


def _within(entries: Hardest, first: int, count: int) -> Hardest:
    """The entries whose candidate is one of `count` from number `first` on, counted from there."""
    assert entries.query is not None
    candidate = entries.candidate - first
    here = ((candidate >= 0) & (candidate < count)).nonzero()[:, 0]
    return Hardest(entries.query[here], candidate[here], entries.weight[here])


def _add_entries(
    on_queries: Tensor, on_candidates: Tensor, queries: Tensor, candidates: Tensor, some: Hardest
) -> None:
    add_rows(on_queries, some.query, candidates, some.candidate, some.weight)
    add_rows(on_candidates, some.candidate, queries, some.query, some.weight)


def _finished(
    work: Work, verdict: Verdict, factors: tuple[Factor, Factor], row_lines: int, vectors: Tensor
) -> Gradients:
    """With the weights on positives: all there is to a batch."""
    pairs, images, count = work.pairs, work.count, work.pairs.count
    on_positive, outside = verdict.on_positive, verdict.outside
    weight = on_positive[:count] * factors[0] + pairs.by_image(on_positive[count:]) * factors[1]
    if pairs.order is None:
        vectors[:images].addcmul_(work.texts, weight[:, None])
        vectors[images:].addcmul_(work.images, weight[:, None])
    else:
        image, caption = pairs.i2t.query, pairs.i2t.candidate + images
        add_rows(vectors, image, work.vectors, caption, weight)
        add_rows(vectors, caption, work.vectors, image, weight)
    by_direction: tuple[Tensor | None, Tensor | None] = (None, None)
    if outside is not None:
        by_direction = outside[:count] * factors[0], outside[count:] * factors[1]
    bias = None
    if work.bias is not None:  # its derivative is the sum of all weights
        bias = _total(on_positive, count, factors)
        if verdict.on_hardest is not None:
            bias = bias + _total(verdict.on_hardest, count, factors)
        elif verdict.pushed is not None:
            bias = bias + _total(verdict.pushed, row_lines, factors)
        else:
            raise InputError(
                f"{work.rule.name}: an objective with a bias returns the sum of its weights on "
                "negatives too: Verdict(..., pushed=...). The bias's gradient needs it."
            )
    value = _total(verdict.values, pairs.i2t.queries, factors)  # of the queries here
    return Gradients(value, verdict.values, vectors, by_direction, bias)


def _total(values: Tensor, first: int, factors: tuple[Factor, Factor]) -> Tensor:
    """The sum of the image queries' values, which come first, and of the captions'."""
    if isinstance(factors[0], float) and factors[0] == factors[1]:
        return values.sum() * factors[0]
    return values[:first].sum() * factors[0] + values[first:].sum() * factors[1]
