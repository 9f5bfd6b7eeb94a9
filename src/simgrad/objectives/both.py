"""Both directions from one matrix product: for rules that are written in pieces.

1. Each block of similarities is made once. Its rows are complete queries of one direction, its
   columns parts of all queries of the other; both are summarised.
2. The summaries of all blocks are judged: values, and the weights on positives.
3. Where the weights on negatives waited for this, each block is made a second time. The weights of
   both directions, added, are multiplied into the gradients of images and texts.

That is three products for most rules, four for those that need step 3, and one for those that give
weight to the hardest negative alone. One direction at a time there would be six. A small square
batch needs no blocks, and three products or one: `weigh_in_one`.
"""

from typing import Protocol

import torch
from torch import Tensor

from simgrad.objectives.batch import Batch, Whole
from simgrad.objectives.rows import Gradients, Work, add_times
from simgrad.objectives.streamed import Streamed, Summary, Verdict
from simgrad.objectives.sums import Sums

Block = tuple[int, int, slice]  # rows start:stop, and their pairs


class Tiles(Protocol):
    """How a block of similarities is summarised and weighed. The weights are of both directions.

    What queries are given is of all of them, the image queries first.
    """

    def first(self, block: Block, before: Summary) -> tuple[Summary, Summary, Tensor | None]:
        """Summaries of a block's rows, of its columns, and its weights if known already.

        None of the columns where one direction stands for both (`Work.alone`), or where a block of
        all rows has put them after those of the rows.
        """

    def second(self, block: Block, given: Summary) -> Tensor:
        """Weights of a block."""


class PlainTiles:
    """The tiles of any device: one operation of PyTorch after the other."""

    def __init__(self, work: Work, stream: Streamed) -> None:
        self.work, self.stream = work, stream

    def first(self, block: Block, before: Summary) -> tuple[Summary, Summary, Tensor | None]:
        negatives, (start, stop, _) = self._negatives(block), block
        by_row, weights = self.stream.summarise(negatives, rows_of(before, start, stop))
        if self.work.alone:
            return by_row, (), weights
        of_columns = rows_of(before, self.work.pairs.i2t.queries)
        by_column, more = self.stream.summarise(negatives.t(), of_columns, start)
        if weights is not None and more is not None:
            weights = add_times(weights, more.t(), self.work.ratio)
        return by_row, by_column, weights

    def second(self, block: Block, given: Summary) -> Tensor:
        negatives, (start, stop, _) = self._negatives(block), block
        weights = self.stream.spread(negatives, rows_of(given, start, stop))
        of_columns = rows_of(given, self.work.pairs.i2t.queries)
        more = self.stream.spread(negatives.t(), of_columns)
        return add_times(weights, more.t(), self.work.ratio)

    def _negatives(self, block: Block) -> Tensor:
        """A block of similarities, -inf where there is no negative."""
        (start, stop, pairs), absent = block, self.work.pairs.i2t.absent
        S = self.work.similarities(self.work.images[start:stop], self.work.texts)
        if absent is not None:
            S.masked_fill_(absent[start:stop, None], -torch.inf)
        return self.work.pairs.fill(S, -torch.inf, start, pairs)


def rows_of(summary: Summary, start: int, stop: int | None = None) -> Summary:
    return tuple(x[start:stop] for x in summary)


def weigh_in_one(work: Work, stream: Streamed) -> Gradients:
    """A square batch whose similarities fit, every query with negatives: one matrix has them all.

    Its rows are the image queries and, below them, the caption queries.
    """
    S, sums = work.similarities(work.images, work.texts), Sums(work)
    images = work.pairs.i2t.queries
    batch = joint(work, S.diagonal())
    every = S if work.alone else torch.cat([S, S.t()])
    del S
    verdict = stream.in_one(every, batch)
    if isinstance(verdict, Verdict):
        return sums.finish(verdict)
    values, weights = verdict
    if not work.alone:
        weights = weights[:images].add_(weights[images:].t())
    sums.add((0, images, slice(None)), weights)
    return sums.close(values, None if work.bias is None else weights.sum())


def weigh_in_blocks(work: Work, stream: Streamed) -> Gradients:
    """A batch of any size."""
    return weigh_tiles(work, stream, PlainTiles(work, stream), work.pairs.i2t.blocks(work.size))


def weigh_tiles(work: Work, stream: Streamed, tiles: Tiles, blocks: list[Block]) -> Gradients:
    """The three steps."""
    images, texts = work.pairs.i2t.queries, work.pairs.t2i.queries
    sums = Sums(work)
    batch = joint(work, work.own(work.unit[:images], work.unit[images:], work.pairs.i2t))
    known = stream.before(batch, images + texts)
    summaries = _Summaries(stream, images, texts)
    for block in blocks:
        by_row, by_column, weights = tiles.first(block, known)
        summaries.add(block, by_row, by_column)
        if weights is not None:
            sums.add(block, weights)
    verdict = silenced(stream.judge(summaries.all, batch), work, batch)
    if verdict.given:
        for block in blocks:
            sums.add(block, tiles.second(block, verdict.given))
    return sums.finish(verdict)


class _Summaries:
    """The summaries of all queries, the images' first, block by block."""

    def __init__(self, stream: Streamed, images: int, texts: int) -> None:
        self.stream, self.images, self.texts = stream, images, texts
        self.all: Summary = ()

    def add(self, block: Block, by_row: Summary, by_column: Summary) -> None:
        start, stop, _ = block
        if stop - start == self.images:
            self.all = by_row
            if by_column:
                self.all = tuple(map(torch.cat, zip(by_row, by_column, strict=True)))
            return
        if start == 0:
            # One piece of memory: many small ones between large temporaries would fragment it.
            queries = self.images + (self.texts if by_column else 0)
            self.all = tuple(x.new_empty(queries) for x in by_row)
        for every, some in zip(self.all, by_row, strict=True):
            every[start:stop] = some
        if not by_column:
            return
        so_far = rows_of(self.all, self.images, self.images + self.texts)
        if start > 0:
            by_column = self.stream.merge(
                tuple(map(torch.stack, zip(so_far, by_column, strict=True)))
            )
        for every, merged in zip(so_far, by_column, strict=True):
            every.copy_(merged)


def joint(work: Work, own: Tensor) -> Batch:
    """Both directions as one: the image queries, then the caption queries.

    `own` are the similarities of the positive pairs, sorted by image.
    """
    pairs = work.pairs
    i2t, t2i = pairs.i2t, pairs.t2i
    if work.alone:
        query, candidate, similarity = i2t.query_of_pair, i2t.candidate_of_pair, own.clone()
        whole, one_each = Whole(similarity), i2t.one_each
    else:
        query, candidate = pairs.together
        similarity = torch.cat([own, pairs.by_caption(own)])
        whole, one_each = Whole(similarity[: pairs.count]), i2t.one_each and t2i.one_each
    outside = None
    if work.outside[0] is not None and work.outside[1] is not None:
        outside = torch.cat([work.outside[0], work.outside[1]])
    return Batch(query, candidate, one_each, similarity, whole, outside, i2t.diagonal)


def silenced(verdict: Verdict, work: Work, batch: Batch) -> Verdict:
    """A query without a negative contributes nothing, unless it has negatives elsewhere."""
    silent = work.silent
    if silent is None:
        return verdict
    values, of_pair = verdict.values.masked_fill(silent, 0), batch.per_pair(silent)
    on_positive, on_negative = verdict.on_positive.masked_fill(of_pair, 0), verdict.on_negative
    if on_negative is not None:
        on_negative = on_negative.masked_fill(of_pair, 0)
    return verdict._replace(values=values, on_positive=on_positive, on_negative=on_negative)
