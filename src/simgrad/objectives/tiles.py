"""The shapes of the fused kernels' tiles: `benchmarks/tiles.py --write` measures and writes them.

By the name of a kernel's rule and the precision of its products.
"""

from typing import NamedTuple


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
    ("softmax-summary", "bf16"): Shape(128, 128, 64, 4, 3, 16),
    ("softmax-keep", "bf16"): Shape(128, 128, 64, 4, 3, 16),
    ("softmax", "bf16"): Shape(128, 128, 64, 8, 3, 16),
    ("rank-summary", "bf16"): Shape(128, 128, 64, 8, 3, 16),
    ("rank", "bf16"): Shape(128, 128, 64, 8, 3, 16),
    ("hinge", "bf16"): Shape(128, 128, 64, 8, 3, 16),
    ("sigmoid", "bf16"): Shape(128, 128, 64, 8, 3, 16),
    ("hardest", "bf16"): Shape(128, 128, 64, 4, 3, 16),
    ("hardest-linear", "bf16"): Shape(128, 128, 64, 8, 3, 16),
    ("hardest-exponential", "bf16"): Shape(128, 128, 64, 8, 3, 16),
    ("softmax-summary", "tf32"): Shape(128, 128, 32, 8, 3),
    ("softmax-keep", "tf32"): Shape(128, 128, 32, 8, 3),
    ("softmax", "tf32"): Shape(128, 128, 32, 8, 3),
    ("rank-summary", "tf32"): Shape(128, 128, 32, 8, 3),
    ("rank", "tf32"): Shape(128, 128, 32, 8, 3),
    ("hinge", "tf32"): Shape(128, 128, 32, 8, 3),
    ("sigmoid", "tf32"): Shape(128, 128, 32, 8, 3),
    ("hardest", "tf32"): Shape(128, 128, 32, 8, 3),
    ("hardest-linear", "tf32"): Shape(128, 128, 32, 8, 3),
    ("hardest-exponential", "tf32"): Shape(128, 128, 32, 8, 3),
}
# By the bytes of a number: what a GPU with less shared memory than the measured has room for.
MODEST = {2: Shape(128, 128, 64, 8, 3, 16), 4: Shape(128, 128, 32, 8, 3)}
