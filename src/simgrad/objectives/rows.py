"""One direction at a time: for rules that must see whole rows.

For each direction and each block of query rows, a matrix product makes the similarities, the rule
turns them into weights, and two products multiply these into the gradients. A batch that is small
enough takes one block for both directions.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.base import Objective, dense, factor_of, weigh_block, weigh_whole
from simgrad.objectives.batch import Sparse, Whole
from simgrad.objectives.positives import Positives, Side
from simgrad.objectives.tensors import add_product, at_least_float32, dots, product

Outside = tuple[Tensor | None, Tensor | None]


@dataclass(frozen=True)
class Work:
    """What all ways of working need to know."""

    objective: Objective
    bias: Tensor | None
    pairs: Positives
    outside: Outside
    size: int  # similarities in a block
    unit: Tensor  # (images and texts, width) what is multiplied, the scale in it
    used: Tensor  # the same in the precision of products
    scale: "Tensor | float" = 1.0  # of the similarities: the square of the vectors' length

    @cached_property
    def images(self) -> Tensor:
        return self.used[: self.pairs.i2t.queries]

    @cached_property
    def texts(self) -> Tensor:
        return self.used[self.pairs.i2t.queries :]

    def similarities(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """(queries, candidates) as the rule sees them."""
        S = product(queries, candidates.t())
        return S if self.bias is None else S.add_(self.bias.detach())

    def own(self, queries: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """The positive pairs alone, as many at a time as a block has room for."""
        if side.diagonal:
            own = dots(at_least_float32(queries), candidates)[:, 0]
        else:
            many = max(1, self.size // queries.shape[1])
            parts = zip(
                torch.split(side.query_of_pair, many),
                torch.split(side.candidate_of_pair, many),
                strict=True,
            )
            some = [(at_least_float32(queries[q]) * candidates[c]).sum(1) for q, c in parts]
            own = some[0] if len(some) == 1 else torch.cat(some)
        return own if self.bias is None else own.add_(self.bias.detach())

    @cached_property
    def ratio(self) -> "float | Tensor":
        """A caption query's factor, relative to an image query's."""
        kind = self.unit.dtype
        one, other = (factor_of(self.objective, s, kind) for s in (self.pairs.i2t, self.pairs.t2i))
        return other / one

    @cached_property
    def even(self) -> bool:
        """Whether the queries of both directions count alike."""
        return isinstance(self.ratio, float) and self.ratio == 1.0

    @cached_property
    def silent(self) -> Tensor | None:
        """(images and captions,) the queries that contribute nothing."""
        sides = self.pairs.i2t, self.pairs.t2i
        found = [s.absent if self.objective.needs_offline else s.silent for s in sides]
        if found[0] is None and found[1] is None:
            return None
        device = self.pairs.t2i.query_of_pair.device
        none = (torch.zeros(s.queries, dtype=torch.bool, device=device) for s in sides)
        return torch.cat([n if f is None else f for f, n in zip(found, none, strict=True)])

    @cached_property
    def alone(self) -> bool:
        """Whether one direction stands for both."""
        stream = self.objective.stream()
        return stream is not None and stream.symmetric and self.silent is None

    @cached_property
    def share(self) -> "float | Tensor":
        """An image query's factor, with a caption query's where they are worked as one."""
        share = factor_of(self.objective, self.pairs.i2t, self.unit.dtype)
        return share * (1 + self.ratio) if self.alone else share


class Gradients(NamedTuple):
    """The loss and its derivatives, relative to `Work.share`."""

    value: Tensor
    vectors: Tensor  # by the images and texts that are multiplied
    outside: Outside
    bias: Tensor | None


def in_one_piece(work: Work) -> Gradients:
    """Both directions share one similarity matrix: three matrix products."""
    pairs, x, y = work.pairs, work.images, work.texts
    S = work.similarities(x, y)
    transposed = None if work.alone else S.t().clone(memory_format=torch.contiguous_format)
    i2t = weigh_whole(work.objective, S, pairs.i2t, work.outside[0])
    W, value, outside = i2t.weights, i2t.value, (i2t.outside, i2t.outside)
    V: Tensor | Sparse | None = None
    if transposed is not None:
        t2i = weigh_whole(work.objective, transposed, pairs.t2i, work.outside[1])
        V, value = t2i.weights, value + times(t2i.value, work.ratio)
        outside = i2t.outside, None if t2i.outside is None else times(t2i.outside, work.ratio)
    if isinstance(W, Sparse) or isinstance(V, Sparse):
        vectors = torch.zeros_like(work.unit)
        dx, dy = vectors[: len(x)], vectors[len(x) :]
        total = _apply(W, x, y, (dx, dy), 1.0).sum()
        if V is not None:
            total = total + work.ratio * _apply(V, y, x, (dy, dx), work.ratio).sum()
    else:
        W = W if V is None else add_times(W, V.t(), work.ratio)
        vectors, half = torch.empty_like(work.unit), W.to(x.dtype)
        product(half, y, vectors[: len(x)])
        product(half.t(), x, vectors[len(x) :])
        total = W
    return Gradients(value, vectors, outside, None if work.bias is None else total.sum())


def in_blocks(work: Work) -> Gradients:
    """Six matrix products: three for each direction."""
    vectors, x, y = torch.zeros_like(work.unit), work.images, work.texts
    dx, dy = vectors[: len(x)], vectors[len(x) :]
    i2t = _direction(work, (x, y), (dx, dy), work.pairs.i2t, work.outside[0], 1.0)
    t2i = _direction(work, (y, x), (dy, dx), work.pairs.t2i, work.outside[1], work.ratio)
    bias = None if work.bias is None else i2t.bias + t2i.bias
    return Gradients(i2t.value + t2i.value, vectors, (i2t.outside, t2i.outside), bias)


class _Sums(NamedTuple):
    value: Tensor
    outside: Tensor | None
    bias: Tensor


def _direction(
    work: Work,
    vectors: tuple[Tensor, Tensor],  # of queries and candidates
    gradients: tuple[Tensor, Tensor],
    side: Side,
    outside: Tensor | None,
    factor: "float | Tensor",
) -> _Sums:
    queries, candidates = vectors
    whole = Whole(work.own(queries, candidates, side))
    value = whole.positive_similarities.new_zeros(())
    bias, outer = torch.zeros_like(value), []
    for block in side.blocks(work.size):
        start, stop, _ = block
        q = queries[start:stop]
        S = work.similarities(q, candidates)  # (rows, candidates)
        part = weigh_block(work.objective, S, side, whole, block, outside)
        into = (gradients[0][start:stop], gradients[1])
        total = _apply(part.weights, q, candidates, into, factor)
        value += part.value
        if work.bias is not None:
            bias += total.sum()
        if part.outside is not None:
            outer.append(part.outside)
    result = times(torch.cat(outer), factor) if outer else None
    return _Sums(value * factor, result, bias * factor)


def _apply(
    weights: "Tensor | Sparse",
    queries: Tensor,
    candidates: Tensor,
    gradients: tuple[Tensor, Tensor],
    factor: "float | Tensor",
) -> Tensor:
    """Multiply a block's weights into the gradients of queries and candidates; returns them."""
    on_queries, on_candidates = gradients
    if isinstance(weights, Sparse) and weights.query.numel() * 8 > len(queries) * len(candidates):
        weights = dense(weights, on_queries.new_empty(len(queries), len(candidates)))
    if isinstance(weights, Sparse):
        column = (weights.weight * factor)[:, None]
        on_queries.index_add_(0, weights.query, candidates[weights.candidate] * column)
        on_candidates.index_add_(0, weights.candidate, queries[weights.query] * column)
        return weights.weight
    used = weights.to(queries.dtype)
    if isinstance(factor, Tensor):
        used, factor = used * factor.to(used.dtype), 1.0
    add_product(on_queries, used, candidates, factor)
    add_product(on_candidates, used.t(), queries, factor)
    return weights


def times(x: Tensor, factor: "float | Tensor") -> Tensor:
    return x if isinstance(factor, float) and factor == 1.0 else x * factor


def add_times(to: Tensor, x: Tensor, factor: "float | Tensor") -> Tensor:
    """In place: to += factor * x."""
    return to.addcmul_(x, factor) if isinstance(factor, Tensor) else to.add_(x, alpha=factor)
