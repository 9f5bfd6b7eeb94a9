"""From embeddings to gradients, without ever holding the whole similarity matrix.

For each direction and each block of query rows:
1. similarities of the block: one matrix product;
2. the rule turns them into weights;
3. the weights are multiplied into the gradients of queries and candidates at once.
The gradient is complete when the forward pass ends; `.backward()` only scales it.
A batch that is small enough takes one block for both directions.

The scale of the similarities costs nothing: it goes into the images before the products, and its
derivative is the product of the images and their gradient. On a GPU, half-precision inputs are
multiplied in bfloat16, summed in float32.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.errors import InputError
from simgrad.objectives.base import (
    Objective,
    Sparse,
    Whole,
    dense,
    weigh_block,
    weigh_whole,
)
from simgrad.objectives.outside import Offline, join_offline, split_offline
from simgrad.objectives.positives import Positives, Side
from simgrad.objectives.tensors import (
    add_product,
    at_least_float32,
    attach,
    check_finite,
    exact_type,
    may_check,
    product,
    product_type,
)

# How many similarities a block holds: 3 MiB on a CPU, where several temporaries must stay near the
# caches; 256 MiB on a GPU, where larger products are faster.
_BLOCK = {"cpu": 3 * 2**18, "cuda": 2**26}
# Up to how many a batch is worked in one piece, which takes half the products: 16 MiB and 1 GiB.
_DIRECT = {"cpu": 2**22, "cuda": 2**28}
_TINY = 1e-12


def weigh_embeddings(
    objective: Objective,
    images: Tensor,
    texts: Tensor,
    positives: "Tensor | Positives | None",
    offline: Offline | None,
    block: int | None,
) -> Tensor:
    """The loss of a batch of embeddings, its gradient attached."""
    _check_shapes(images, texts)
    scale, bias = objective.affine()
    kind = product_type(images, texts)
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        exact = exact_type(images, texts)
        x, x_norm = _normalised(images.detach().to(exact))
        y, y_norm = _normalised(texts.detach().to(exact))
        checking = may_check(x)
        check_finite(x, "images", checking)
        check_finite(y, "texts", checking)
        pairs = Positives.read(positives, len(x), len(y), x.device, checking)
        outside = split_offline(objective, offline, pairs, x)
        size = block or _BLOCK.get(x.device.type, 3 * 2**18)
        largest = len(pairs.t2i.query_of_pair) * max(len(x), len(y))
        room = block or _DIRECT.get(x.device.type, 2**22)
        whole = not objective.separable or largest <= room
        if scale is not None:
            x *= scale.detach().to(x.dtype)
        work = _Work(objective, bias, pairs, outside, size)
        result = (_in_one if whole else _in_blocks)(work, x.to(kind), y.to(kind))
        on_scale = None
        if scale is not None:
            x /= scale.detach().to(x.dtype)
            on_scale = torch.dot(x.flatten(), result.images.flatten())
            result.images.mul_(scale.detach().to(x.dtype))
        _through_normalisation(result.images, x, x_norm)
        _through_normalisation(result.texts, y, y_norm)
        offline_weights = join_offline(*result.outside, pairs)
    inputs: list[Tensor | None] = [images, texts, *(offline or ()), scale, bias]
    gradients = [result.images, result.texts, *(offline_weights or ()), on_scale, result.bias]
    return attach(result.value, inputs, gradients)


class _Work(NamedTuple):
    """What both ways of working need to know."""

    objective: Objective
    bias: Tensor | None
    pairs: Positives
    outside: tuple[Tensor | None, Tensor | None]
    size: int

    def similarities(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """(queries, candidates) as the rule sees them; the scale is in the embeddings already."""
        S = product(queries, candidates.t())
        return S if self.bias is None else S.add_(self.bias.detach())

    def factor(self, side: Side) -> "float | Tensor":
        return side.share if self.objective.mean else 1.0


class _Gradients(NamedTuple):
    """The loss and its derivatives by scaled images, texts, offline similarities and the bias."""

    value: Tensor
    images: Tensor
    texts: Tensor
    outside: tuple[Tensor | None, Tensor | None]
    bias: Tensor | None


def _in_one(work: _Work, x: Tensor, y: Tensor) -> _Gradients:
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
    return _Gradients(
        i2t.value * i_factor + t2i.value * t_factor,
        dx,
        dy,
        (_times(i2t.outside, i_factor), _times(t2i.outside, t_factor)),
        bias,
    )


def _zeros(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    exact = at_least_float32(x).dtype
    return torch.zeros_like(x, dtype=exact), torch.zeros_like(y, dtype=exact)


def _in_blocks(work: _Work, x: Tensor, y: Tensor) -> _Gradients:
    dx, dy = _zeros(x, y)
    i2t = _direction(work, x, y, dx, dy, work.pairs.i2t, work.outside[0])
    t2i = _direction(work, y, x, dy, dx, work.pairs.t2i, work.outside[1])
    bias = None if work.bias is None else i2t.bias + t2i.bias
    return _Gradients(i2t.value + t2i.value, dx, dy, (i2t.outside, t2i.outside), bias)


class _Sums(NamedTuple):
    value: Tensor
    outside: Tensor | None
    bias: Tensor


def _direction(
    work: _Work,
    queries: Tensor,
    candidates: Tensor,
    query_gradients: Tensor,
    candidate_gradients: Tensor,
    side: Side,
    outside: Tensor | None,
) -> _Sums:
    positive = _pair_similarities(queries, candidates, side, work.size)
    whole = Whole(positive if work.bias is None else positive + work.bias.detach())
    factor = work.factor(side)
    value, bias = positive.new_zeros(()), positive.new_zeros(())
    outer = []
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
    return _Sums(value * factor, _times(result, factor), bias * factor)


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


def _times(x: Tensor | None, factor: "float | Tensor") -> Tensor | None:
    return None if x is None else x * factor


def _pair_similarities(queries: Tensor, candidates: Tensor, side: Side, size: int) -> Tensor:
    """The positive pairs alone, as many at a time as a block has room for."""
    many = max(1, size // queries.shape[1])
    parts = zip(
        torch.split(side.query_of_pair, many),
        torch.split(side.candidate_of_pair, many),
        strict=True,
    )
    return torch.cat([(at_least_float32(queries[q]) * candidates[c]).sum(1) for q, c in parts])


def _normalised(x: Tensor) -> tuple[Tensor, Tensor]:
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / norm.clamp_min(_TINY), norm


def _through_normalisation(gradient: Tensor, unit: Tensor, norm: Tensor) -> None:
    """In place: d/dx of x/|x|. A zero vector has no direction to turn; it gets no gradient."""
    along = torch.einsum("nd,nd->n", gradient, unit)[:, None]
    gradient.addcmul_(unit, along, value=-1)
    gradient.mul_(torch.where(norm > _TINY, 1 / norm, 0.0))


def _check_shapes(images: Tensor, texts: Tensor) -> None:
    for what, x in (("images", images), ("texts", texts)):
        if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
            got = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"{what} must be a floating-point tensor (count, dimension), not {got}."
            )
        if x.numel() == 0:
            raise InputError(f"{what} is empty: shape {tuple(x.shape)}.")
    if images.shape[1] != texts.shape[1]:
        raise InputError(
            f"images have {images.shape[1]} dimensions, texts {texts.shape[1]}: they must share a "
            "space."
        )
