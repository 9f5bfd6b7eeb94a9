"""Both directions from one matrix product: for rules that are written in pieces.

1. Each block of similarities is made once. Its rows are complete queries of one direction, its
   columns parts of all queries of the other; both are summarised.
2. The summaries of all blocks are judged: values, and the weights on positives.
3. Where the weights on negatives waited for this, each block is made a second time. The weights of
   both directions, added, are multiplied into the gradients of images and texts.

That is three products for most rules, four for those that need step 3, and one for those that give
weight to the hardest negative alone. One direction at a time there would be six. A batch that is
small enough is one block, which is kept.
"""

from typing import Protocol

import torch
from torch import Tensor

from simgrad.objectives.base import Batch, Whole
from simgrad.objectives.positives import Positives, Side
from simgrad.objectives.rows import Gradients, Work
from simgrad.objectives.streamed import Streamed, Summary, Verdict
from simgrad.objectives.tensors import add_product, at_least_float32, product

Block = tuple[int, int, slice]  # rows start:stop, and their pairs
Both = tuple[Summary, Summary]  # of the image queries, of the caption queries


class Tiles(Protocol):
    """How a block of similarities is summarised and weighed. The weights are of both directions."""

    def first(self, block: Block, before: Both) -> tuple[Summary, Summary, Tensor | None]:
        """Summaries of a block's rows, of its columns, and its weights if known already."""

    def second(self, block: Block, given: Both) -> Tensor:
        """Weights of a block."""


class PlainTiles:
    """The tiles of any device: one operation of PyTorch after the other."""

    def __init__(
        self, work: Work, stream: Streamed, x: Tensor, y: Tensor, kept: Tensor | None = None
    ) -> None:
        self.work, self.stream, self.x, self.y = work, stream, x, y
        self.kept = kept  # all similarities, where they fit

    def first(self, block: Block, before: Both) -> tuple[Summary, Summary, Tensor | None]:
        negatives, (start, stop, _) = self._negatives(block), block
        by_row, weights = self.stream.summarise(negatives, rows_of(before[0], start, stop))
        if self.stream.symmetric:
            both = 1 + self.work.ratio
            by_row, nothing = tuple(x * both for x in by_row), torch.zeros_like(negatives[0])
            return (
                by_row,
                tuple(nothing for _ in by_row),
                None if weights is None else weights * both,
            )
        by_column, more = self.stream.summarise(negatives.t(), before[1], start)
        if weights is not None and more is not None:
            weights = self._add(weights, more)
        return by_row, by_column, weights

    def second(self, block: Block, given: Both) -> Tensor:
        start, stop, _ = block
        negatives = self._negatives(block) if self.kept is None else self.kept
        weights = self.stream.spread(negatives, rows_of(given[0], start, stop))
        return self._add(weights, self.stream.spread(negatives.t(), given[1]))

    def _negatives(self, block: Block) -> Tensor:
        """A block of similarities, -inf where there is no negative."""
        (start, stop, pairs), side = block, self.work.pairs.i2t
        S = self.kept
        if S is None:
            S = self.work.similarities(self.x[start:stop], self.y)
        if side.absent is not None:
            S.masked_fill_(side.absent[start:stop, None], -torch.inf)
        query, nothing = side.query_of_pair[pairs], S.new_full((), -torch.inf)
        place = (query - start if start else query, side.candidate_of_pair[pairs])
        return S.index_put_(place, nothing)

    def _add(self, weights: Tensor, of_columns: Tensor) -> Tensor:
        ratio = self.work.ratio
        if isinstance(ratio, Tensor):
            return weights.addcmul_(of_columns.t(), ratio)
        return weights.add_(of_columns.t(), alpha=ratio)


def rows_of(summary: Summary, start: int, stop: int) -> Summary:
    return tuple(x[start:stop] for x in summary)


def weigh_in_one(work: Work, stream: Streamed, x: Tensor, y: Tensor) -> Gradients:
    """A batch whose similarities fit: they are made once, and kept."""
    S, side = work.similarities(x, y), work.pairs.i2t
    own = S[side.query_of_pair, side.candidate_of_pair]
    tiles = PlainTiles(work, stream, x, y, S)
    return weigh_tiles(work, stream, x, y, own, tiles, [(0, len(x), slice(None))])


def weigh_in_blocks(work: Work, stream: Streamed, x: Tensor, y: Tensor) -> Gradients:
    own = work.own(x, y)
    tiles = PlainTiles(work, stream, x, y)
    return weigh_tiles(work, stream, x, y, own, tiles, work.pairs.i2t.blocks(work.size))


def weigh_tiles(
    work: Work,
    stream: Streamed,
    x: Tensor,
    y: Tensor,
    own: Tensor,
    tiles: Tiles,
    blocks: list[Block],
) -> Gradients:
    """The three steps. `own` are the similarities of the positive pairs, sorted by image."""
    i2t, t2i = work.pairs.i2t, work.pairs.t2i
    i_batch = _batch(i2t, own, work.outside[0])
    t_batch = _batch(t2i, _by_caption(own, work.pairs), work.outside[1])
    before = stream.before(i_batch, len(x)), stream.before(t_batch, len(y))
    sums = _Sums(work, x, y)
    summaries = _Summaries(stream, len(x))
    for block in blocks:
        by_row, by_column, weights = tiles.first(block, before)
        summaries.add(block, by_row, by_column)
        if weights is not None:
            sums.add(block, weights)
    images = _silenced(stream.judge(summaries.images, i_batch), i2t, i_batch, stream)
    texts = _silenced(stream.judge(summaries.texts, t_batch), t2i, t_batch, stream)
    if images.given:
        for block in blocks:
            sums.add(block, tiles.second(block, (images.given, texts.given)))
    sums.add_pairs(images, texts)
    return sums.gradients(images, texts)


def _batch(side: Side, own: Tensor, outside: Tensor | None) -> Batch:
    query, candidate = side.query_of_pair, side.candidate_of_pair
    return Batch(query, candidate, side.one_each, own, Whole(own), outside)


def _by_caption(of_pairs: Tensor, pairs: Positives) -> Tensor:
    """What is sorted by image, sorted by caption."""
    if pairs.order is None:
        return of_pairs
    return torch.empty_like(of_pairs).index_copy_(0, pairs.order, of_pairs)


class _Summaries:
    """The summaries of all queries, block by block."""

    def __init__(self, stream: Streamed, images: int) -> None:
        self.stream, self.count = stream, images
        self.images: Summary = ()
        self.texts: Summary = ()

    def add(self, block: Block, by_row: Summary, by_column: Summary) -> None:
        start, stop, _ = block
        if stop - start == self.count:
            self.images, self.texts = by_row, by_column
            return
        if start == 0:
            # One piece of memory: many small ones between large temporaries would fragment it.
            self.images = tuple(x.new_empty(self.count) for x in by_row)
            self.texts = tuple(x.clone() for x in by_column)
        else:
            parts = tuple(map(torch.stack, zip(self.texts, by_column, strict=True)))
            for so_far, merged in zip(self.texts, self.stream.merge(parts), strict=True):
                so_far.copy_(merged)
        for every, some in zip(self.images, by_row, strict=True):
            every[start:stop] = some


def _silenced(verdict: Verdict, side: Side, batch: Batch, stream: Streamed) -> Verdict:
    """A query without a negative contributes nothing, unless it has negatives elsewhere."""
    silent = side.absent if stream.needs_offline else side.silent
    if silent is None:
        return verdict
    values, of_pair = verdict.values.masked_fill(silent, 0), batch.per_pair(silent)
    on_positive, on_negative = verdict.on_positive.masked_fill(of_pair, 0), verdict.on_negative
    if on_negative is not None:
        on_negative = on_negative.masked_fill(of_pair, 0)
    return verdict._replace(values=values, on_positive=on_positive, on_negative=on_negative)


class _Sums:
    """The gradients of images and texts while they are summed, without the images' share."""

    def __init__(self, work: Work, x: Tensor, y: Tensor) -> None:
        self.work, self.x, self.y = work, x, y
        self.dx: Tensor | None = None
        self.dy: Tensor | None = None

    def add(self, block: Block, weights: Tensor) -> None:
        """Weights of a block on all pairs of its images and the texts."""
        start, stop, _ = block
        used = weights.to(self.x.dtype)
        if stop - start == len(self.x):
            self.dx, self.dy = product(used, self.y), product(used.t(), self.x)
            return
        dx, dy = self._so_far()
        add_product(dx[start:stop], used, self.y, 1.0)
        add_product(dy, used.t(), self.x[start:stop], 1.0)

    def _so_far(self) -> tuple[Tensor, Tensor]:
        if self.dx is None or self.dy is None:
            exact = at_least_float32(self.x).dtype
            self.dx = torch.zeros_like(self.x, dtype=exact)
            self.dy = torch.zeros_like(self.y, dtype=exact)
        return self.dx, self.dy

    def add_pairs(self, images: Verdict, texts: Verdict) -> None:
        """The weights on positives, and those on single negatives."""
        pairs, ratio = self.work.pairs, self.work.ratio
        backward = texts.on_positive if pairs.order is None else texts.on_positive[pairs.order]
        weight = images.on_positive + ratio * backward
        if pairs.order is None:
            dx, dy = self._so_far()
            dx.addcmul_(at_least_float32(self.y), weight[:, None])
            dy.addcmul_(at_least_float32(self.x), weight[:, None])
        else:
            self._add_entries(pairs.i2t.query_of_pair, pairs.i2t.candidate_of_pair, weight)
        if images.negative is not None and images.on_negative is not None:
            self._add_entries(pairs.i2t.query_of_pair, images.negative, images.on_negative)
        if texts.negative is not None and texts.on_negative is not None:
            on_negative = ratio * texts.on_negative
            self._add_entries(texts.negative, pairs.t2i.query_of_pair, on_negative)

    def _add_entries(self, image: Tensor, text: Tensor, weight: Tensor) -> None:
        """Some entries of the matrix of weights, as many at a time as a block has room for."""
        dx, dy = self._so_far()
        many = max(1, self.work.size // self.x.shape[1])
        parts = (torch.split(each, many) for each in (image, text, weight[:, None]))
        for i, t, w in zip(*parts, strict=True):
            dx.index_add_(0, i, self.y[t] * w)
            dy.index_add_(0, t, self.x[i] * w)

    def gradients(self, images: Verdict, texts: Verdict) -> Gradients:
        work = self.work
        share, ratio = work.factor(work.pairs.i2t), work.ratio
        value = images.values.sum() + ratio * texts.values.sum()
        bias = None if work.bias is None else _total(images) + ratio * _total(texts)
        if work.objective.mean:
            value, bias = value * share, None if bias is None else bias * share
        dx, dy = self._so_far()
        outside = _times(images.outside, share), _times(texts.outside, share * ratio)
        return Gradients(value, dx, dy, outside, bias, share)


def _total(verdict: Verdict) -> Tensor:
    """The sum of all weights; those of a query cancel where the verdict does not say otherwise."""
    rest = verdict.pushed if verdict.on_negative is None else verdict.on_negative
    if rest is None:
        return verdict.values.new_zeros(())
    return verdict.on_positive.sum() + rest.sum()


def _times(x: Tensor | None, factor: "float | Tensor") -> Tensor | None:
    return None if x is None else x * factor
