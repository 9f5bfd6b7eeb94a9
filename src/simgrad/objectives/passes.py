"""Triton kernels that pass over a matrix once, where PyTorch's operations would several times.

Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl

from simgrad.objectives.formulas import exp, steps


@triton.jit(do_not_specialize=["of_rows", "of_columns", "rows", "beside"])
def normalise(
    weights,  # (rows, columns) exponentials of similarities; in place, their softmax weights
    of_rows,  # (1, rows) logs of the sums
    of_columns,  # (1, columns)
    beside,  # not read
    rows,
    columns,
    ratio,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    # From the end: what was written last is still near, and what is written last is read next.
    row = (tl.num_programs(1) - 1 - tl.program_id(1)) * DOWN + tl.arange(0, DOWN)
    column = tl.program_id(0) * ACROSS + tl.arange(0, ACROSS)
    there, here = row < rows, column < columns
    r = exp(-tl.load(of_rows + row, mask=there, other=0.0))
    c = ratio * exp(-tl.load(of_columns + column, mask=here, other=0.0))
    at = weights + row.to(tl.int64)[:, None] * columns + column[None, :]
    both = there[:, None] & here[None, :]
    w = tl.load(at, mask=both, other=0.0).to(tl.float32) * (r[:, None] + c[None, :])
    tl.store(at, w.to(weights.dtype.element_ty), mask=both)


@triton.jit(do_not_specialize=["of_rows", "of_columns", "rows", "beside"])
def rank(
    weights,  # (rows, columns) similarities; in place, their weights
    of_rows,  # (2, rows) the similarity of a query's positive, and its factor `beside` it
    of_columns,  # (2, columns)
    beside,
    rows,
    columns,
    ratio,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    row = (tl.num_programs(1) - 1 - tl.program_id(1)) * DOWN + tl.arange(0, DOWN)
    column = tl.program_id(0) * ACROSS + tl.arange(0, ACROSS)
    there, here = row < rows, column < columns
    r = tl.load(of_rows + row, mask=there, other=0.0)
    c = tl.load(of_columns + column, mask=here, other=0.0)
    at = weights + row.to(tl.int64)[:, None] * columns + column[None, :]
    both = there[:, None] & here[None, :]
    g, h = steps(tl.load(at, mask=both, other=0.0), r, c, True)
    r = tl.load(of_rows + beside + row, mask=there, other=0.0)
    c = tl.load(of_columns + beside + column, mask=here, other=0.0)
    w = (g - g * g) * r[:, None] + (h - h * h) * (ratio * c)[None, :]
    tl.store(at, w, mask=both)


@triton.jit(do_not_specialize=["scale", "rows"])
def turn(
    gradients,  # (rows, width) by vectors of one length; in place, by what these were made of
    unit,  # (rows, width) the vectors
    divisors,  # (rows,) what their originals were divided by
    along,  # (rows,) written: the products of vectors and gradients
    scale,  # the square of the vectors' length: a number, or where it lies
    rows,
    width,
    KNOWN: tl.constexpr,  # it is a number
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    row, column = tl.program_id(0) * DOWN + tl.arange(0, DOWN), tl.arange(0, ACROSS)
    there, here = row < rows, column < width
    at, both = row.to(tl.int64)[:, None] * width + column[None, :], there[:, None] & here[None, :]
    g = tl.load(gradients + at, mask=both, other=0.0)
    u = tl.load(unit + at, mask=both, other=0.0)
    product = tl.sum(g * u, 1)
    tl.store(along + row, product, mask=there)
    if KNOWN:
        share = product / scale
    else:
        share = product / tl.load(scale)
    divisor = tl.load(divisors + row, mask=there, other=1.0)
    tl.store(gradients + at, (g - u * share[:, None]) / divisor[:, None], mask=both)


@triton.jit(do_not_specialize=["scale", "rows"])
def lengthen(
    given,  # (rows, width) any vectors
    unit,  # (rows, width) written: the same, all of one length;
    used,  # (rows, width) and, if ROUNDED, in another precision. Either may lie where `given` lies
    norms,  # (rows,) written: their lengths,
    divisors,  # (rows,) and what they were divided by
    scale,  # the square of the length: a number, or where it lies
    rows,
    width,
    tiny,  # vectors that are no longer stay 0
    ROUNDED: tl.constexpr,
    KNOWN: tl.constexpr,  # the scale is a number
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    row, column = tl.program_id(0) * DOWN + tl.arange(0, DOWN), tl.arange(0, ACROSS)
    there, here = row < rows, column < width
    at, both = row.to(tl.int64)[:, None] * width + column[None, :], there[:, None] & here[None, :]
    x = tl.load(given + at, mask=both, other=0.0).to(tl.float32)
    norm = tl.sqrt(tl.sum(x * x, 1))
    if KNOWN:
        root = tl.sqrt(scale)
    else:
        root = tl.sqrt(tl.load(scale))
    divisor = tl.where(norm <= tiny, float("inf"), norm) / root
    x = x / divisor[:, None]
    tl.store(norms + row, norm, mask=there)
    tl.store(divisors + row, divisor, mask=there)
    tl.store(unit + at, x, mask=both)
    if ROUNDED:
        tl.store(used + at, x.to(used.dtype.element_ty), mask=both)
