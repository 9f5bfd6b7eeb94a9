"""Triton kernels of weighted pooling: values are ranked by counting, in registers.

A sort writes sorted values and where they came from; all that pooling needs is each value's rank.
In sets of a few dozen the quickest way to it is to count the values before it: every value is
compared with every other. A program works WIDE dimensions of one set.

Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl


# Sets of another size need no kernel of their own.
@triton.jit(do_not_specialize=["size", "weights_stride"])
def pool(
    features,  # (sets, size, width)
    mask,  # (sets, size) 1: the value is there
    weights,  # (sets, size) of ranks, `weights_stride` apart
    pooled,  # (sets, width)
    ranks,  # (sets, size, width)
    size,
    width,
    weights_stride,
    MASKED: tl.constexpr,
    RANKED: tl.constexpr,  # whether ranks are kept, for the backward pass
    PLACES: tl.constexpr,  # at least size
    WIDE: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    place = tl.arange(0, PLACES)
    here, there = column < width, place < size
    if MASKED:
        there &= tl.load(mask + item * size + place, mask=there, other=0) != 0
    both = there[:, None] & here[None, :]
    at = item * size * width + place[:, None] * width + column[None, :]
    x = tl.load(features + at, mask=both, other=0.0).to(tl.float32)
    rank = tl.zeros((PLACES, WIDE), dtype=tl.int32)
    for other in tl.range(0, size, loop_unroll_factor=4):
        row = features + (item * size + other) * width + column
        y = tl.load(row, mask=here, other=0.0).to(tl.float32)[None, :]
        # Of equal values the first comes first.
        before = (y > x) | ((y == x) & (other < place)[:, None])
        if MASKED:
            before &= tl.load(mask + item * size + other) != 0
        rank += before.to(tl.int32)
    w = tl.load(weights + item * weights_stride + rank, mask=both, other=0.0)
    total = tl.sum(tl.where(both, x * w, 0.0), 0)
    tl.store(pooled + item * width + column, total, mask=here)
    if RANKED:
        tl.store(ranks + at, rank.to(tl.uint8), mask=(place < size)[:, None] & here[None, :])


@triton.jit(do_not_specialize=["size", "weights_stride"])
def pool_backward(
    features,
    mask,
    weights,
    ranks,
    above,  # (sets, width) gradient of what was pooled
    of_features,  # (sets, size, width) gradient
    of_weights,  # (blocks across, sets, size) gradient, in parts
    size,
    width,
    weights_stride,
    MASKED: tl.constexpr,
    PLACES: tl.constexpr,
    WIDE: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    place = tl.arange(0, PLACES)
    here, inside = column < width, place < size
    there = inside
    if MASKED:
        there &= tl.load(mask + item * size + place, mask=inside, other=0) != 0
    g = tl.load(above + item * width + column, mask=here, other=0.0).to(tl.float32)

    at = item * size * width + place[:, None] * width + column[None, :]
    both = there[:, None] & here[None, :]
    rank = tl.load(ranks + at, mask=both, other=0).to(tl.int32)
    w = tl.load(weights + item * weights_stride + rank, mask=both, other=0.0)
    kept = inside[:, None] & here[None, :]
    tl.store(of_features + at, (g[None, :] * w).to(of_features.dtype.element_ty), mask=kept)

    # A weight's gradient is the sum over the values of its rank, each times what came from above.
    total = tl.zeros((PLACES, WIDE), dtype=tl.float32)
    for other in tl.range(0, size, loop_unroll_factor=4):
        row = (item * size + other) * width + column
        real = here
        if MASKED:
            # One address for all: a scalar's comparison is no mask for Triton's interpreter.
            real &= tl.load(mask + item * size + other + 0 * column) != 0
        y = tl.load(features + row, mask=real, other=0.0).to(tl.float32) * g
        where = tl.load(ranks + row, mask=real, other=255).to(tl.int32)
        total += tl.where(where[None, :] == place[:, None], y[None, :], 0.0)
    part = of_weights + (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + item) * size
    tl.store(part + place, tl.sum(total, 1), mask=inside)
