"""Gradients of images and texts, while they are summed: from blocks of weights, and from pairs."""

import torch
from torch import Tensor

from simgrad.objectives.rows import Gradients, Work, times
from simgrad.objectives.streamed import Verdict
from simgrad.objectives.tensors import add_product, product


class Sums:
    """Gradients relative to an image query's share of the loss."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.vectors: Tensor | None = None  # (images and texts, width)

    def add(self, block: tuple[int, int, slice], weights: Tensor) -> None:
        """Weights of a block: on all pairs of its images and the texts. Blocks come in order."""
        (start, stop, _), work = block, self.work
        used, images = weights.to(work.used.dtype), work.pairs.i2t.queries
        if self.vectors is None:
            self.vectors = torch.empty_like(work.unit)
        product(used, work.texts, self.vectors[start:stop])  # an image is in one block alone
        if start == 0:
            product(used.t(), work.images[:stop], self.vectors[images:])
        else:
            add_product(self.vectors[images:], used.t(), work.images[start:stop], 1.0)

    def _so_far(self) -> Tensor:
        if self.vectors is None:
            self.vectors = torch.zeros_like(self.work.unit)
        return self.vectors

    def finish(self, verdict: Verdict) -> Gradients:
        """With the weights on positives and on single negatives: all there is to a batch."""
        self._add_positives(verdict.on_positive)
        if verdict.negative is not None and verdict.on_negative is not None:
            self._add_rivals(verdict.negative, verdict.on_negative)
        bias = None if self.work.bias is None else self._bias(verdict)
        return self.close(verdict.values, bias, verdict.outside)

    def close(
        self, values: Tensor, bias: Tensor | None, outside: Tensor | None = None
    ) -> Gradients:
        """The weights are in the sums already."""
        value, count = self._total(values, self.work.pairs.i2t.queries), self.work.pairs.count
        if outside is None:
            return Gradients(value, self._so_far(), (None, None), bias)
        by_direction = outside[:count], times(outside[count:], self.work.ratio)
        return Gradients(value, self._so_far(), by_direction, bias)

    def _bias(self, verdict: Verdict) -> Tensor:
        """The sum of all weights."""
        count = self.work.pairs.count
        pulled = self._total(verdict.on_positive, count)
        if verdict.on_negative is not None:
            return pulled + self._total(verdict.on_negative, count)
        if verdict.pushed is not None:
            return pulled + self._total(verdict.pushed, self.work.pairs.i2t.queries)
        return torch.zeros_like(pulled)  # the weights of a query cancel

    def _total(self, values: Tensor, first: int) -> Tensor:
        """The sum of the first values, which are the image queries', and of the captions'."""
        if self.work.alone or self.work.even:
            return values.sum()
        return values[:first].sum() + self.work.ratio * values[first:].sum()

    def _add_positives(self, weight: Tensor) -> None:
        pairs, images = self.work.pairs, self.work.pairs.i2t.queries
        count = pairs.count
        if not self.work.alone and pairs.order is None and self.work.even:
            weight = weight.view(2, count).sum(0)
        elif not self.work.alone:
            back = weight[count:] if pairs.order is None else weight[count:][pairs.order]
            weight = torch.add(weight[:count], times(back, self.work.ratio))
        if pairs.order is None:
            vectors, unit, column = self._so_far(), self.work.unit, weight[:, None]
            vectors[:images].addcmul_(unit[images:], column)
            vectors[images:].addcmul_(unit[:images], column)
        else:
            self._add_entries(pairs.i2t.query_of_pair, pairs.i2t.candidate_of_pair + images, weight)

    def _add_rivals(self, rival: Tensor, weight: Tensor) -> None:
        """The one negative of each pair: of the image queries, then of the captions'."""
        pairs, count = self.work.pairs, self.work.pairs.count
        rival[:count].add_(pairs.i2t.queries)  # texts come after the images
        if not self.work.even:
            weight = torch.cat([weight[:count], times(weight[count:], self.work.ratio)])
        one_each = pairs.i2t.one_each and pairs.t2i.one_each
        self._add_entries(None if one_each else pairs.together[0], rival, weight)

    def _add_entries(self, query: Tensor | None, candidate: Tensor, weight: Tensor) -> None:
        """Some entries of the matrix of weights, as many at a time as a block has room for.

        Places are those of the images and texts. Without a query, entry k belongs to vector k.
        """
        vectors, unit = self._so_far(), self.work.unit
        many = max(1, self.work.size // unit.shape[1])
        for start in range(0, len(candidate), many):
            part = slice(start, start + many)
            other, w = candidate[part], weight[part, None]
            if query is None:
                own = unit[part]
                vectors[part].addcmul_(unit[other], w)
            else:
                own = unit[query[part]]
                vectors.index_add_(0, query[part], unit[other] * w)
            vectors.index_add_(0, other, own * w)
