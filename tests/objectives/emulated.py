"""The fused kernel, in PyTorch's operations: for the code around it, where there is no GPU.

It takes what `kernels.tile` takes, finds its place in memory the same way, and knows nothing else.
"""

import contextlib
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from simgrad.objectives import fused


def _memory(tensor: Tensor, *shape_and_strides: tuple[int, int]) -> Tensor:
    """What lies from a tensor's first element on."""
    shape, strides = zip(*shape_and_strides, strict=True)
    return torch.as_strided(tensor, shape, strides, tensor.storage_offset())


def _summary(
    rule: str, s: Tensor, given: Tensor | None, steepness: float, closed: bool, bounded: bool
) -> Any:
    """(queries, candidates of a tile) -> numbers per query; a place is one within the tile."""
    if rule.startswith("softmax"):
        return (s.exp().sum(1) if bounded else s.logsumexp(1),)
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
            total = total.exp() if bounded else total
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
    if rule.endswith("-keep"):
        return s.exp() if rule == "softmax-keep" else s
    gap = s - given[0][:, None]
    if rule == "softmax":
        return gap.exp()
    if rule == "hinge":
        return (gap > 0).to(s.dtype)
    above = gap.sigmoid()
    return (above - above * above) * given[1][:, None]


class Kernel:
    """Stands for a kernel of Triton; knows how often it was started."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function, self.launches = function, 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.launches += 1
        return self.function


def stand_in(patch: pytest.MonkeyPatch) -> dict[str, Kernel]:
    """Kernels by their names."""
    kernels = {"tile": Kernel(_tile), "normalise": Kernel(_normalise), "rank": Kernel(_rank)}
    for where, names in (("kernels", ("tile",)), ("passes", ("normalise", "rank"))):
        module = types.ModuleType(f"simgrad.objectives.{where}")
        for name in names:
            setattr(module, name, kernels[name])
        patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(f"simgrad.objectives.{where}", module, raising=False)
    return kernels


def without_a_gpu(patch: pytest.MonkeyPatch, rows: int, texts: int = 300) -> None:
    """The way of a GPU, in blocks of so many rows, whatever stands for the kernels."""
    patch.setattr(fused, "suits", lambda *_: True)
    patch.setattr(fused, "_BLOCK", texts * rows * 4)
    patch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())


def _normalise(
    weights: Tensor, of_rows: Tensor, of_columns: Tensor, beside: int, rows: int, columns: int,
    ratio: float, **_: Any,
) -> None:  # fmt: skip
    r, c = ((-_memory(of, (n, 1))).exp() for of, n in ((of_rows, rows), (of_columns, columns)))
    _memory(weights, (rows, columns), (columns, 1)).mul_(r[:, None] + ratio * c)


def _rank(
    weights: Tensor, of_rows: Tensor, of_columns: Tensor, beside: int, rows: int, columns: int,
    ratio: float, **_: Any,
) -> None:  # fmt: skip
    s = _memory(weights, (rows, columns), (columns, 1))
    r, c = (_memory(of, (2, beside), (n, 1)) for of, n in ((of_rows, rows), (of_columns, columns)))
    s.copy_(_weights("rank", s, r) + ratio * _weights("rank", s.t(), c).t())


def _tile(
    x: Tensor, y: Tensor, owner: Tensor, bias: Tensor, of_rows: Tensor, of_columns: Tensor,
    row_parts: Tensor, column_parts: Tensor, weights: Tensor, first: int, rows: int, columns: int,
    width: int, beside: int, row_stride: int, column_stride: int, ratio: float, steepness: float,
    *, RULE: str, CLOSED: bool, BIASED: bool, BOUNDED: bool, ALONE: bool, DOWN: int, ACROSS: int,
    **_: Any,
) -> None:  # fmt: skip
    images, texts = (
        _memory(of, (count, width), (width, 1)) for of, count in ((x, rows), (y, columns))
    )
    s = images @ texts.t() + (bias if BIASED else 0.0)
    row = torch.arange(first, first + rows)
    s[row[:, None] == _memory(owner, (columns, 1))[None]] = -torch.inf
    nothing = dict.fromkeys(("sigmoid", "softmax-summary", "softmax-keep", "hardest"), 0)
    numbers = {"rank": 2, **nothing}.get(RULE, 1)
    apart = 0 if BOUNDED and RULE.startswith("hardest-") else 1  # one bound for all
    given = [
        _memory(of, (numbers, beside), (count, apart)) if numbers else of
        for of, count in ((of_rows, rows), (of_columns, columns))
    ]
    sides = [(s, given[0], row_parts, row_stride, ACROSS, 0)]
    if not ALONE:
        sides.append((s.t(), given[1], column_parts, column_stride, DOWN, first))
    for seen, known, parts, stride, size, start in sides if RULE not in ("softmax", "rank") else ():
        tiles = -(-seen.shape[1] // size)
        for k in range(tiles):
            some = seen[:, k * size : (k + 1) * size]
            summary = _summary(RULE, some, known, steepness, CLOSED, BOUNDED)
            for n, number in enumerate(summary):
                place = number + k * size + start if n == 1 and RULE.startswith("hard") else number
                out = _memory(parts, (n + 1, tiles * stride), (tiles, stride), (len(seen), 1))
                out[n, k] = place.to(out.dtype)
    if RULE in ("softmax", "softmax-keep", "rank", "rank-keep", "hinge", "sigmoid"):
        total = _weights(RULE, s, given[0])
        if not RULE.endswith("-keep"):
            total = total + ratio * _weights(RULE, s.t(), given[1]).t()
        _memory(weights, (rows, columns), (columns, 1)).copy_(total)
