"""Gradients of images and texts, while they are summed: from blocks of weights, and from pairs."""

import torch
from torch import Tensor

from simgrad.objectives.rows import Gradients, Work, times
from simgrad.objectives.streamed import Verdict
from simgrad.objectives.tensors import add_product, at_least_float32, product


class Sums:
    """Gradients without the factor of an image query, which is left to `Gradients.factor`."""

    def __init__(self, work: Work, x: Tensor, y: Tensor) -> None:
        self.work, self.x, self.y = work, x, y
        self.dx: Tensor | None = None
        self.dy: Tensor | None = None

    def add(self, block: tuple[int, int, slice], weights: Tensor) -> None:
        """Weights of a block: on all pairs of its images and the texts."""
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
            exact = self.work.exact
            self.dx = torch.zeros_like(self.x, dtype=exact)
            self.dy = torch.zeros_like(self.y, dtype=exact)
        return self.dx, self.dy

    def finish(self, verdict: Verdict) -> Gradients:
        """With the weights on positives and on single negatives: all there is to a batch."""
        work, count = self.work, len(self.work.pairs.i2t.query_of_pair)
        ratio = 0.0 if work.alone else work.ratio
        self._add_positives(verdict.on_positive)
        if verdict.negative is not None and verdict.on_negative is not None:
            one, other = verdict.negative[:count], verdict.negative[count:]
            there, back = verdict.on_negative[:count], verdict.on_negative[count:]
            self._add_entries(work.pairs.i2t.query_of_pair, one, there)
            self._add_entries(other, work.pairs.t2i.query_of_pair, _times(back, ratio))
        value = _weighed(verdict.values, work.pairs.i2t.queries, ratio)
        bias = None
        if work.bias is not None:
            bias = _weighed(verdict.on_positive, count, ratio)
            if verdict.on_negative is not None:
                bias = bias + _weighed(verdict.on_negative, count, ratio)
            elif verdict.pushed is not None:
                bias = bias + _weighed(verdict.pushed, work.pairs.i2t.queries, ratio)
            else:  # the weights of a query cancel
                bias = torch.zeros_like(bias)
        outside: tuple[Tensor | None, Tensor | None] = None, None
        if verdict.outside is not None:
            outside = verdict.outside[:count], _times(verdict.outside[count:], ratio)
        dx, dy = self._so_far()
        share = work.share
        if work.objective.mean:
            value, bias = value * share, None if bias is None else bias * share
            outside = times(outside[0], share), times(outside[1], share)
        return Gradients(value, dx, dy, outside, bias, share)

    def _add_positives(self, weight: Tensor) -> None:
        pairs = self.work.pairs
        count = len(pairs.i2t.query_of_pair)
        if not self.work.alone:
            back = weight[count:] if pairs.order is None else weight[count:][pairs.order]
            weight = weight[:count] + _times(back, self.work.ratio)
        if pairs.order is not None:
            self._add_entries(pairs.i2t.query_of_pair, pairs.i2t.candidate_of_pair, weight)
            return
        dx, dy = self._so_far()
        dx.addcmul_(at_least_float32(self.y), weight[:, None])
        dy.addcmul_(at_least_float32(self.x), weight[:, None])

    def _add_entries(self, image: Tensor, text: Tensor, weight: Tensor) -> None:
        """Some entries of the matrix of weights, as many at a time as a block has room for."""
        dx, dy = self._so_far()
        many = max(1, self.work.size // self.x.shape[1])
        parts = (torch.split(each, many) for each in (image, text, weight[:, None]))
        for i, t, w in zip(*parts, strict=True):
            dx.index_add_(0, i, self.y[t] * w)
            dy.index_add_(0, t, self.x[i] * w)


def _times(x: Tensor, factor: "float | Tensor") -> Tensor:
    return x if isinstance(factor, float) and factor == 1.0 else x * factor


def _weighed(values: Tensor, first: int, ratio: "float | Tensor") -> Tensor:
    """The sum of the first values and of the rest, these `ratio` times."""
    if isinstance(ratio, float) and ratio in (0.0, 1.0):
        return values.sum()  # with a ratio of 0 there is no rest
    return values[:first].sum() + ratio * values[first:].sum()
