"""The shapes of the fused kernels' tiles."""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor


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
