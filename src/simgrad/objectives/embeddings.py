"""From embeddings to gradients, without ever holding the whole similarity matrix.

For each direction and each block of query rows:
1. similarities of the block: one matrix product;
2. the rule turns them into weights;
3. the weights are multiplied into the gradients of queries and candidates at once.
The gradient is complete when the forward pass ends; `.backward()` only scales it.
A batch that is small enough takes one block for both directions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.errors import InputError
from simgrad.objectives.base import (
    Objective,
    Offline,
    Sparse,
    Whole,
    affine_of,
    dense,
    join_offline,
    split_offline,
    weigh_block,
    weigh_rows,
)
from simgrad.objectives.positives import Positives, Side
from simgrad.objectives.tensors import add, at_least_float32, attach, check_finite, may_check

# How many similarities a block holds: 4 MiB on a CPU, where several temporaries must stay near the
# caches; 128 MiB on a GPU, where larger products are faster.
_BLOCK = {"cpu": 2**20, "cuda": 2**25}
_TINY = 1e-12


class _Gradients(NamedTuple):
    value: Tensor
    images: Tensor
    texts: Tensor
    outside: tuple[Tensor | None, Tensor | None]
    scale: Tensor | None
    bias: Tensor | None


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
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        x, x_norm = _normalised(images.detach())
        y, y_norm = _normalised(texts.detach())
        checking = may_check(x)
        check_finite(x, "images", checking)
        check_finite(y, "texts", checking)
        pairs = Positives.read(positives, len(x), len(y), x.device, checking)
        outside = split_offline(objective, offline, pairs, x)
        size = block or _BLOCK.get(x.device.type, 2**20)
        largest = len(pairs.t2i.query_of_pair) * max(len(x), len(y))
        weigh = _in_one if block is None and largest <= size else _in_blocks
        result = weigh(objective, x, y, pairs, outside, size)
        _through_normalisation(result.images, x, x_norm)
        _through_normalisation(result.texts, y, y_norm)
        offline_weights = join_offline(*result.outside, pairs)
    inputs: list[Tensor | None] = [images, texts, *(offline or ()), scale, bias]
    gradients = [result.images, result.texts, *(offline_weights or ()), result.scale, result.bias]
    return attach(result.value, inputs, gradients)


def _in_one(
    objective: Objective,
    x: Tensor,
    y: Tensor,
    pairs: Positives,
    outside: tuple[Tensor | None, Tensor | None],
    size: int,
) -> _Gradients:
    """Both directions share one similarity matrix: three matrix products."""
    S = x @ y.t()
    i2t = weigh_rows(objective, S, pairs.i2t, outside[0])
    t2i = weigh_rows(objective, S.t().contiguous(), pairs.t2i, outside[1])
    W = i2t.weights + t2i.weights.t()
    return _Gradients(
        i2t.value + t2i.value,
        W @ y,
        W.t() @ x,
        (i2t.outside, t2i.outside),
        add(i2t.scale, t2i.scale),
        add(i2t.bias, t2i.bias),
    )


def _in_blocks(
    objective: Objective,
    x: Tensor,
    y: Tensor,
    pairs: Positives,
    outside: tuple[Tensor | None, Tensor | None],
    size: int,
) -> _Gradients:
    dx, dy = torch.zeros_like(x), torch.zeros_like(y)
    i2t = _direction(objective, x, y, dx, dy, pairs.i2t, outside[0], size)
    t2i = _direction(objective, y, x, dy, dx, pairs.t2i, outside[1], size)
    scale = add(i2t.scale, t2i.scale)
    return _Gradients(
        i2t.value + t2i.value, dx, dy, (i2t.outside, t2i.outside), scale, add(i2t.bias, t2i.bias)
    )


class _Sums(NamedTuple):
    value: Tensor
    outside: Tensor | None
    scale: Tensor | None
    bias: Tensor | None


def _direction(
    objective: Objective,
    queries: Tensor,
    candidates: Tensor,
    query_gradients: Tensor,
    candidate_gradients: Tensor,
    side: Side,
    outside: Tensor | None,
    size: int,
) -> _Sums:
    whole = Whole(affine_of(objective, _pair_similarities(queries, candidates, side)))
    # Learned scales need every weight; otherwise few weights are applied one by one.
    densify = objective.affine() != (None, None)
    value = queries.new_zeros(())
    scale, bias = (None if p is None else queries.new_zeros(()) for p in objective.affine())
    outer = []
    for block in side.blocks(size):
        start, stop, _ = block
        q = queries[start:stop]
        S = q @ candidates.t()  # (rows, candidates)
        part = weigh_block(objective, S, side, whole, block, outside, densify)
        W = part.weights
        if isinstance(W, Sparse) and W.query.numel() * 8 > S.numel():
            W = dense(W, S)
        if isinstance(W, Sparse):
            column = W.weight[:, None]
            query_gradients[start:stop].index_add_(0, W.query, candidates[W.candidate] * column)
            candidate_gradients.index_add_(0, W.candidate, q[W.query] * column)
        else:
            query_gradients[start:stop].addmm_(W, candidates)
            candidate_gradients.addmm_(W.t(), q)
        value = value + part.value
        if part.outside is not None:
            outer.append(part.outside)
        scale, bias = add(scale, part.scale), add(bias, part.bias)
    return _Sums(value, torch.cat(outer) if outer else None, scale, bias)


def _pair_similarities(queries: Tensor, candidates: Tensor, side: Side) -> Tensor:
    """The positive pairs alone, a few thousand at a time."""
    parts = zip(
        torch.split(side.query_of_pair, 8192),
        torch.split(side.candidate_of_pair, 8192),
        strict=True,
    )
    return torch.cat([(queries[q] * candidates[c]).sum(1) for q, c in parts])


def _normalised(x: Tensor) -> tuple[Tensor, Tensor]:
    x = at_least_float32(x)
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
