"""Starting a printed kernel, block by block: the shape of its tiles, and what does not change from
block to block, put together once.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.engine.passes import Block, Lines, Shard
from simgrad.objectives.engine.work import Factor, Work


class Shape(NamedTuple):
    """The shape of a tile and of the program that works it."""

    down: int
    across: int
    wide: int
    warps: int
    stages: int
    group: int
    described: bool  # tiles are fetched by hardware


# By the bytes of a number: the fastest of those tried on an H200. Where hardware does not fetch
# tiles, or there is no room for them, more warps share a tile's registers.
_SHAPES = {2: Shape(128, 128, 64, 4, 3, 8, True), 4: Shape(128, 128, 32, 4, 3, 8, True)}
_MODEST = {2: Shape(128, 128, 64, 8, 3, 16, False), 4: Shape(128, 128, 32, 8, 3, 8, False)}
SMALL = Shape(16, 16, 16, 4, 1, 2, False)  # for Triton's interpreter, which runs on a CPU


def fitting(x: Tensor) -> Shape:
    """A shape that the GPU of vectors x has room for, and that it can fetch."""
    size, (room, fetches) = x.element_size(), _limits(x.device)
    shape = _SHAPES[size]
    fits = shape.stages * (shape.down + shape.across) * shape.wide * size <= room - 2**11
    return shape if fits and fetches and x.shape[1] * size % 16 == 0 else _MODEST[size]


@cache
def _limits(device: torch.device) -> tuple[int, bool]:
    """Bytes of shared memory that a program may have, and whether hardware fetches tiles."""
    properties: Any = torch.cuda.get_device_properties(device)
    room = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    return room, properties.major >= 9


# Works a block, and puts its weights where there is room for them.
Launch = Callable[[Block, Tensor | None], None]


class Launcher:
    """Starts kernels over a batch."""

    def __init__(self, work: Work, shape: Shape) -> None:
        self.work, self.shape, self.x, pairs = work, shape, work.vectors, work.pairs
        # A text that belongs to several images, or to none, is named by its pairs.
        self.owner = pairs.t2i.candidate.contiguous()
        self.apart = pairs.i2t.ignored
        if not pairs.t2i.one_each:
            self.owner = torch.full((pairs.t2i.queries,), -1, device=self.x.device)
            own = torch.stack([pairs.i2t.query, pairs.i2t.candidate], 1)
            self.apart = own if self.apart is None else torch.cat([own, self.apart])

    def prepare(
        self, kernel: Any, rows: Lines, shard: Shard, by_row: Tensor, by_column: Tensor
    ) -> Launch:
        """A kernel with all that does not change from block to block."""
        work, shape, x, y = self.work, self.shape, self.work.images, shard.texts
        of_rows, of_columns = (rows.stacked, shard.lines.stacked) if rows.told else (x, x)
        factors = _factors(rows.factor, shard.lines.factor, len(x), len(y), x.device)
        vectors = _described(x, y, shape) if shape.described else (x, y)
        owner, bias, width = self.owner if shard.own else x, self._bias(), x.shape[1]
        strides = (
            of_rows.stride(0), of_columns.stride(0), by_row.stride(1), by_column.stride(1),
            by_row.stride(0), by_column.stride(0),
        )  # fmt: skip
        named = {
            "OWN": shard.own, "BIASED": work.bias is not None, "FACTORS": factors.each is not None,
            "PRECISION": "tf32", "EVEN": width % shape.wide == 0, "DESCRIBED": shape.described,
            "DOWN": shape.down, "ACROSS": shape.across, "WIDE": shape.wide,
            "num_warps": shape.warps, "num_stages": shape.stages,
        }  # fmt: skip
        each = factors.each or (x, x)  # or not read

        def launch(block: Block, weights: Tensor | None) -> None:
            (top, bottom), (left, right) = ((p.start, p.stop) for p in block[:2])
            apart, apart_from = self._apart(block) if shard.own else (None, None)
            programs = -(-(bottom - top) // shape.down) * -(-(right - left) // shape.across)
            kernel[(programs,)](
                *vectors, owner, x if apart is None else apart,
                x if apart_from is None else apart_from, bias, of_rows, of_columns, *each,
                by_row, by_column, x if weights is None else weights,
                top, left, bottom - top, right - left, width, *strides, *factors.of_all,
                APART=apart is not None, GROUP=16 if weights is None else shape.group, **named,
            )  # fmt: skip

        return launch

    def _bias(self) -> Tensor:
        """A number of the host is filled in, not copied: a CUDA graph can hold that."""
        bias = self.work.bias
        if bias is None:
            return self.x  # not read
        if bias.device == self.x.device:
            return bias.to(torch.float32)
        return torch.full((), float(bias), dtype=torch.float32, device=self.x.device)

    def _apart(self, block: Block) -> tuple[Tensor | None, Tensor | None]:
        """The pairs of a block that are no negatives, by tile."""
        if self.apart is None:
            return None, None
        row, column = self.apart[:, 0] - block.rows.start, self.apart[:, 1] - block.columns.start
        height, width = (part.stop - part.start for part in block[:2])
        here = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        row, column = row[here], column[here]
        tiles_down, tiles_across = -(-height // self.shape.down), -(-width // self.shape.across)
        tile = row // self.shape.down * tiles_across + column // self.shape.across
        tile, order = tile.sort()
        every = torch.arange(tiles_down * tiles_across + 1, device=row.device)
        starts = torch.searchsorted(tile, every).to(torch.int32)
        pairs = torch.stack([row, column], 1)[order].to(torch.int32).contiguous()
        return pairs, starts


class _Factors(NamedTuple):
    """Factors of image and caption queries' weights: numbers, or vectors if some are silent."""

    of_all: tuple[float, float]
    each: tuple[Tensor, Tensor] | None


def _factors(
    rows: Factor, columns: Factor, images: int, texts: int, device: torch.device
) -> _Factors:
    if isinstance(rows, float) and isinstance(columns, float):
        return _Factors((rows, columns), None)
    found = []
    for factor, count in ((rows, images), (columns, texts)):
        some = torch.as_tensor(factor, dtype=torch.float32, device=device)
        found.append(some.expand(count).contiguous())
    return _Factors((1.0, 1.0), (found[0], found[1]))


def _described(x: Tensor, y: Tensor, shape: Shape) -> tuple[Any, Any]:
    """Descriptors of images and texts, from which hardware fetches tiles."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return (
        TensorDescriptor.from_tensor(x, [shape.down, shape.wide]),
        TensorDescriptor.from_tensor(y, [shape.across, shape.wide]),
    )
