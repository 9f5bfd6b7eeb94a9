"""The fused kernel, in PyTorch's operations: for the code around it, where there is no GPU.

It takes what `kernels.tile` takes, finds its place in memory the same way, and knows nothing else.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus


def _memory(tensor: Tensor, *shape_and_strides: tuple[int, int]) -> Tensor:
    """What lies from a tensor's first element on."""
    shape, strides = zip(*shape_and_strides, strict=True)
    return torch.as_strided(tensor, shape, strides, tensor.storage_offset())


def _summary(rule: str, s: Tensor, given: Tensor | None, steepness: float, closed: bool) -> Any:
    """(queries, candidates of a tile) -> numbers per query; a place is one within the tile."""
    if rule == "softmax-summary":
        return (s.logsumexp(1),)
    if rule == "sigmoid":
        return softplus(s).sum(1), s.sigmoid().sum(1)
    if rule.startswith("hardest"):
        hardest, where = s.max(1)
        if rule == "hardest":
            return hardest, where
        assert given is not None
        inside = s >= given[0][:, None] if closed else s > given[0][:, None]
        if rule == "hardest-linear":
            total = s.masked_fill(~inside, 0).sum(1)
        else:
            total = (s * steepness).masked_fill(~inside, -torch.inf).logsumexp(1)
        return hardest, where, inside.sum(1), total
    assert given is not None
    gap = s - given[0][:, None]
    if rule == "hinge":
        return gap.clamp(min=0).sum(1), (gap > 0).sum(1)
    above = gap.sigmoid()
    return above.sum(1), (above - above * above).sum(1)


def _weights(rule: str, s: Tensor, given: Tensor) -> Tensor:
    """(queries, candidates) -> their weights."""
    if rule == "sigmoid":
        return s.sigmoid()
    gap = s - given[0][:, None]
    if rule == "softmax":
        return gap.exp()
    if rule == "hinge":
        return (gap > 0).to(s.dtype)
    above = gap.sigmoid()
    return (above - above * above) * given[1][:, None]


class Tile:
    """Stands for `kernels.tile`."""

    launches = 0

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        self.launches += 1
        return _tile


def _tile(
    x: Tensor, y: Tensor, owner: Tensor, bias: Tensor, of_rows: Tensor, of_columns: Tensor,
    row_parts: Tensor, column_parts: Tensor, weights: Tensor, first: int, rows: int, columns: int,
    width: int, beside: int, row_stride: int, column_stride: int, ratio: float, steepness: float,
    *, RULE: str, CLOSED: bool, BIASED: bool, ALONE: bool, DOWN: int, ACROSS: int, **_: Any,
) -> None:  # fmt: skip
    images, texts = (
        _memory(of, (count, width), (width, 1)) for of, count in ((x, rows), (y, columns))
    )
    s = images @ texts.t() + (bias if BIASED else 0.0)
    row = torch.arange(first, first + rows)
    s[row[:, None] == _memory(owner, (columns, 1))[None]] = -torch.inf
    numbers = {"rank": 2, "sigmoid": 0, "softmax-summary": 0, "hardest": 0}.get(RULE, 1)
    given = [
        _memory(of, (numbers, beside), (count, 1)) if numbers else of
        for of, count in ((of_rows, rows), (of_columns, columns))
    ]
    sides = [(s, given[0], row_parts, row_stride, ACROSS, 0)]
    if not ALONE:
        sides.append((s.t(), given[1], column_parts, column_stride, DOWN, first))
    for seen, known, parts, stride, size, start in sides if RULE not in ("softmax", "rank") else ():
        tiles = -(-seen.shape[1] // size)
        for k in range(tiles):
            some = seen[:, k * size : (k + 1) * size]
            for n, number in enumerate(_summary(RULE, some, known, steepness, CLOSED)):
                place = number + k * size + start if n == 1 and RULE.startswith("hard") else number
                out = _memory(parts, (n + 1, tiles * stride), (tiles, stride), (len(seen), 1))
                out[n, k] = place.to(out.dtype)
    if RULE in ("softmax", "rank", "hinge", "sigmoid"):
        total = _weights(RULE, s, given[0]) + ratio * _weights(RULE, s.t(), given[1]).t()
        _memory(weights, (rows, columns), (columns, 1)).copy_(total)
