"""The shapes of the fused kernels' tiles: `benchmarks/tiles.py --write` measures and writes them.

By the name of a kernel's rule and the precision of its products.
"""

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
    group: int = 8
    registers: int | None = None  # of a thread at most: with fewer, two programs share a processor
    described: bool = False  # tiles are fetched by hardware, where the vectors' width allows it


SHAPES: dict[tuple[str, str], Shape] = {
    ("softmax-summary", "bf16"): Shape(128, 128, 64, 4, 3, 16, None, True),
    ("softmax-keep", "bf16"): Shape(128, 128, 64, 4, 3, 16, None, True),
    ("softmax", "bf16"): Shape(128, 128, 64, 4, 3, 8, None, True),
    ("rank-summary", "bf16"): Shape(128, 128, 64, 4, 3, 16, None, True),
    ("rank", "bf16"): Shape(128, 128, 64, 4, 3, 8, None, True),
    ("hinge", "bf16"): Shape(128, 128, 64, 4, 3, 8, None, True),
    ("sigmoid", "bf16"): Shape(128, 128, 64, 4, 3, 8, None, True),
    ("hardest", "bf16"): Shape(128, 128, 64, 4, 3, 16, None, True),
    ("hardest-linear", "bf16"): Shape(128, 128, 64, 4, 3, 16, None, True),
    ("hardest-exponential", "bf16"): Shape(128, 128, 64, 4, 3, 16, None, True),
    ("softmax-summary", "tf32"): Shape(128, 128, 32, 4, 3, 16, None, True),
    ("softmax-keep", "tf32"): Shape(128, 128, 32, 4, 3, 8, None, True),
    ("softmax", "tf32"): Shape(128, 128, 32, 4, 3, 8, None, True),
    ("rank-summary", "tf32"): Shape(128, 128, 32, 4, 3, 8, None, True),
    ("rank-keep", "tf32"): Shape(128, 128, 32, 4, 3, 16, None, True),
    ("rank", "tf32"): Shape(128, 256, 32, 8, 4, 8, None, True),
    ("hinge", "tf32"): Shape(128, 128, 32, 4, 3, 8, None, True),
    ("sigmoid", "tf32"): Shape(128, 128, 32, 8, 3, 16, 128, True),
    ("hardest", "tf32"): Shape(128, 128, 32, 4, 3, 16, None, True),
    ("hardest-linear", "tf32"): Shape(128, 128, 32, 4, 3, 16, None, True),
    ("hardest-exponential", "tf32"): Shape(128, 128, 32, 4, 3, 16, None, True),
}
# By the bytes of a number: where a measured shape has no room, or hardware cannot fetch its tiles.
# Older GPUs multiply from registers, of which four warps have too few for a tile and its factors.
MODEST = {2: Shape(128, 128, 64, 8, 3, 16), 4: Shape(128, 128, 32, 8, 3)}


@cache
def _limits(device: torch.device) -> tuple[int, bool]:
    """Bytes of shared memory that a program may have, and whether hardware fetches tiles."""
    if device.type != "cuda":
        return 2**30, False
    properties: Any = torch.cuda.get_device_properties(device)
    room = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    return room, properties.major >= 9


def fitting(shape: Shape, x: Tensor) -> Shape:
    """A shape that a GPU has room for, and that it can fetch."""
    room, fetches = _limits(x.device)
    size = x.element_size()
    large = shape.stages * (shape.down + shape.across) * shape.wide * size > room - 2**11
    fetched = fetches and x.shape[1] * size % 16 == 0
    return MODEST[size] if large or (shape.described and not fetched) else shape
