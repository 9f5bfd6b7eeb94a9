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

from simgrad.objectives.base import (
    Objective,
    Sparse,
    Whole,
    dense,
    factor_of,
    weigh_block,
    weigh_whole,
)
from simgrad.objectives.positives import Positives, Side
from simgrad.objectives.tensors import add_product, at_least_float32, product

Outside = tuple[Tensor | None, Tensor | None]


@dataclass(frozen=True)
class Work:
    """What all ways of working need to know."""

    objective: Objective
    bias: Tensor | None
    pairs: Positives
    outside: Outside
    size: int  # similarities in a block
    exact: torch.dtype  # of everything but products

    def similarities(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """(queries, candidates) as the rule sees them; the scale is in the embeddings already."""
        S = product(queries, candidates.t())
        return S if self.bias is None else S.add_(self.bias.detach())

    def own(self, queries: Tensor, candidates: Tensor, side: Side | None = None) -> Tensor:
        """The positive pairs alone, as many at a time as a block has room for."""
        side, many = side or self.pairs.i2t, max(1, self.size // queries.shape[1])
        parts = zip(
            torch.split(side.query_of_pair, many),
            torch.split(side.candidate_of_pair, many),
            strict=True,
        )
        own = torch.cat([(at_least_float32(queries[q]) * candidates[c]).sum(1) for q, c in parts])
        return own if self.bias is None else own.add_(self.bias.detach())

    def factor(self, side: Side) -> "float | Tensor":
        return factor_of(self.objective, side, self.exact)

    @cached_property
    def ratio(self) -> "float | Tensor":
        """A caption query's factor, relative to an image query's."""
        return self.factor(self.pairs.t2i) / self.factor(self.pairs.i2t)

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
        share = self.factor(self.pairs.i2t)
        return share * (1 + self.ratio) if self.alone else share


class Gradients(NamedTuple):
    """The loss and its derivatives by scaled images, texts, offline similarities and the bias."""

    value: Tensor
    images: Tensor
    texts: Tensor
    outside: Outside
    bias: Tensor | None
    factor: "float | Tensor" = 1.0  # of the gradients of images and texts, still to be applied


def in_one_piece(work: Work, x: Tensor, y: Tensor) -> Gradients:
    """Both directions share one similarity matrix: three matrix products."""
    pairs, S = work.pairs, work.similarities(x, y)
    transposed = S.t().clone(memory_format=torch.contiguous_format)
    i2t = weigh_whole(work.objective, S, pairs.i2t, work.outside[0])
    t2i = weigh_whole(work.objective, transposed, pairs.t2i, work.outside[1])
    i_factor, t_factor = work.factor(pairs.i2t), work.factor(pairs.t2i)
    W, V = i2t.weights, t2i.weights
    if isinstance(W, Tensor) and isinstance(V, Tensor):
        if work.objective.mean:
            W, V = W.mul_(i_factor), V.mul_(t_factor)
        W = W.add_(V.t())
        half = W.to(x.dtype)
        dx, dy = product(half, y), product(half.t(), x)
        bias = None if work.bias is None else W.sum()
    else:
        dx, dy = _zeros(x, y)
        on_W, on_V = _apply(W, x, y, (dx, dy), i_factor), _apply(V, y, x, (dy, dx), t_factor)
        bias = None if work.bias is None else i_factor * on_W.sum() + t_factor * on_V.sum()
    outside = times(i2t.outside, i_factor), times(t2i.outside, t_factor)
    return Gradients(i2t.value * i_factor + t2i.value * t_factor, dx, dy, outside, bias)


def _zeros(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    exact = at_least_float32(x).dtype
    return torch.zeros_like(x, dtype=exact), torch.zeros_like(y, dtype=exact)


def in_blocks(work: Work, x: Tensor, y: Tensor) -> Gradients:
    """Six matrix products: three for each direction."""
    dx, dy = _zeros(x, y)
    i2t = _direction(work, x, y, dx, dy, work.pairs.i2t, work.outside[0])
    t2i = _direction(work, y, x, dy, dx, work.pairs.t2i, work.outside[1])
    bias = None if work.bias is None else i2t.bias + t2i.bias
    return Gradients(i2t.value + t2i.value, dx, dy, (i2t.outside, t2i.outside), bias)


class _Sums(NamedTuple):
    value: Tensor
    outside: Tensor | None
    bias: Tensor


def _direction(
    work: Work,
    queries: Tensor,
    candidates: Tensor,
    query_gradients: Tensor,
    candidate_gradients: Tensor,
    side: Side,
    outside: Tensor | None,
) -> _Sums:
    whole, factor = Whole(work.own(queries, candidates, side)), work.factor(side)
    value = whole.positive_similarities.new_zeros(())
    bias, outer = torch.zeros_like(value), []
    for block in side.blocks(work.size):
        start, stop, _ = block
        q = queries[start:stop]
        S = work.similarities(q, candidates)  # (rows, candidates)
        part = weigh_block(work.objective, S, side, whole, block, outside)
        into = (query_gradients[start:stop], candidate_gradients)
        total = _apply(part.weights, q, candidates, into, factor)
        value += part.value
        if work.bias is not None:
            bias += total.sum()
        if part.outside is not None:
            outer.append(part.outside)
    result = torch.cat(outer) if outer else None
    return _Sums(value * factor, times(result, factor), bias * factor)


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


def times(x: Tensor | None, factor: "float | Tensor") -> Tensor | None:
    return None if x is None else x * factor
