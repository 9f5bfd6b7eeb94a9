"""Triton kernels: similarities of a tile, summarised and weighed before they leave the registers.

A program multiplies a tile of images with a tile of texts and applies a rule's formulas to the
result, for both directions. What is written is the tile's part of the summaries and, in half
precision where the inputs are, its weights: the similarities themselves never reach memory. The
formulas are those of the pieces in `triplet.py`, `ntxent.py`, ...: tests hold the two together.

Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl


@triton.jit
def _log_sum_exp(s, axis: tl.constexpr):
    largest = tl.max(s, axis)
    largest = tl.where(largest == -float("inf"), 0.0, largest)
    return largest + tl.log(tl.sum(tl.exp(s - tl.expand_dims(largest, axis)), axis))


@triton.jit
def _sigmoid_and_softplus(s):
    small = tl.exp(-tl.abs(s))
    near = 1.0 + small
    inverse = 1.0 / near
    # log(1 + small), with what rounding took from the sum: billions of small ones add up.
    tail = tl.log(near) + (small - (near - 1.0)) * inverse
    return tl.where(s >= 0.0, inverse, small * inverse), tl.maximum(s, 0.0) + tail


@triton.jit
def _part_of_set(s, bound, axis: tl.constexpr, RULE: tl.constexpr, steepness, CLOSED: tl.constexpr):
    """How many negatives are above the bound, and their sum or log sum exp(steepness s)."""
    if CLOSED:
        inside = s >= bound
    else:
        inside = s > bound
    count = tl.sum(inside.to(tl.float32), axis)
    if RULE == "hardest-linear":
        total = tl.sum(tl.where(inside, s, 0.0), axis)
    else:
        total = _log_sum_exp(tl.where(inside, s * steepness, -float("inf")), axis)
    return count, total


# An uneven block or batch needs no kernel of its own.
@triton.jit(
    do_not_specialize=[
        "of_rows", "of_columns", "row_parts", "column_parts", "first", "rows", "beside",
        "row_stride", "column_stride",
    ]
)  # fmt: skip
def tile(
    x,  # (rows, width) images of this block
    y,  # (columns, width) texts
    owner,  # (columns,) the image each text belongs to
    bias,  # one number
    of_rows,  # (2, rows) what a query is given: of images,
    of_columns,  # (2, columns) and of texts; the second number lies `beside` the first
    row_parts,  # (4, tiles across, rows) summaries, the parts `row_stride` apart
    column_parts,  # (4, tiles down, columns)
    weights,  # (rows, columns)
    first,  # the number of the block's first image
    rows,
    columns,
    width,
    beside,
    row_stride,
    column_stride,
    ratio,  # of a text query's weights to an image query's
    steepness,
    RULE: tl.constexpr,
    CLOSED: tl.constexpr,  # whether a set includes its bound
    BIASED: tl.constexpr,
    PRECISION: tl.constexpr,
    ALONE: tl.constexpr,  # one direction stands for both: ratio is 0
    EVEN: tl.constexpr,  # WIDE divides width
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    WIDE: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Programs that run together share images and texts: groups of GROUP tiles down, then across.
    tiles_down, tiles_across = tl.cdiv(rows, DOWN), tl.cdiv(columns, ACROSS)
    program = tl.program_id(0)
    group, within = program // (GROUP * tiles_across), program % (GROUP * tiles_across)
    high = tl.minimum(tiles_down - group * GROUP, GROUP)
    down, across = group * GROUP + within % high, within // high

    row = down * DOWN + tl.arange(0, DOWN)
    column = across * ACROSS + tl.arange(0, ACROSS)
    there, here = row < rows, column < columns
    k = tl.arange(0, WIDE)
    # Beyond the edge the last vector is read again; what comes of it is masked.
    x_at = x + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * width + k[None, :]
    y_at = y + tl.minimum(column, columns - 1).to(tl.int64)[None, :] * width + k[:, None]
    s = tl.zeros((DOWN, ACROSS), dtype=tl.float32)
    for done in range(0, width, WIDE):
        if EVEN:
            a, b = tl.load(x_at), tl.load(y_at)
        else:
            a = tl.load(x_at, mask=k[None, :] < width - done, other=0.0)
            b = tl.load(y_at, mask=k[:, None] < width - done, other=0.0)
        s = tl.dot(a, b, s, input_precision=PRECISION)
        x_at += WIDE
        y_at += WIDE
    if BIASED:
        s += tl.load(bias)
    belongs = tl.load(owner + column, mask=here, other=-1).to(tl.int32)
    negative = (row[:, None] + first != belongs[None, :]) & there[:, None] & here[None, :]
    s = tl.where(negative, s, -float("inf"))

    row_at = row_parts + across * row_stride + row
    column_at = column_parts + down * column_stride + column
    next_row, next_column = tiles_across * row_stride, tiles_down * column_stride
    at = weights + row.to(tl.int64)[:, None] * columns + column[None, :]
    both = there[:, None] & here[None, :]
    kind = weights.dtype.element_ty

    if RULE == "softmax-summary":
        tl.store(row_at, _log_sum_exp(s, 1), mask=there)
        tl.store(column_at, _log_sum_exp(s, 0), mask=here)
    elif RULE == "softmax":
        r = tl.load(of_rows + row, mask=there, other=0.0)
        c = tl.load(of_columns + column, mask=here, other=0.0)
        w = tl.exp(s - r[:, None]) + ratio * tl.exp(s - c[None, :])
        tl.store(at, w.to(kind), mask=both)
    elif RULE == "rank-summary":
        r = tl.load(of_rows + row, mask=there, other=0.0)
        g = tl.sigmoid(s - r[:, None])
        tl.store(row_at, tl.sum(g, 1), mask=there)
        tl.store(row_at + next_row, tl.sum(g - g * g, 1), mask=there)
        c = tl.load(of_columns + column, mask=here, other=0.0)
        g = tl.sigmoid(s - c[None, :])
        tl.store(column_at, tl.sum(g, 0), mask=here)
        tl.store(column_at + next_column, tl.sum(g - g * g, 0), mask=here)
    elif RULE == "rank":
        r = tl.load(of_rows + row, mask=there, other=0.0)
        r_factor = tl.load(of_rows + beside + row, mask=there, other=0.0)
        g = tl.sigmoid(s - r[:, None])
        w = (g - g * g) * r_factor[:, None]
        c = tl.load(of_columns + column, mask=here, other=0.0)
        c_factor = tl.load(of_columns + beside + column, mask=here, other=0.0)
        g = tl.sigmoid(s - c[None, :])
        w += (g - g * g) * (ratio * c_factor)[None, :]
        tl.store(at, w.to(kind), mask=both)
    elif RULE == "hinge":
        r = tl.load(of_rows + row, mask=there, other=0.0)
        c = tl.load(of_columns + column, mask=here, other=0.0)
        cost = tl.maximum(s - r[:, None], 0.0)
        active = (cost > 0.0).to(tl.float32)
        tl.store(row_at, tl.sum(cost, 1), mask=there)
        tl.store(row_at + next_row, tl.sum(active, 1), mask=there)
        w = active
        cost = tl.maximum(s - c[None, :], 0.0)
        active = (cost > 0.0).to(tl.float32)
        tl.store(column_at, tl.sum(cost, 0), mask=here)
        tl.store(column_at + next_column, tl.sum(active, 0), mask=here)
        tl.store(at, (w + ratio * active).to(kind), mask=both)
    elif RULE == "sigmoid":
        w, cost = _sigmoid_and_softplus(s)
        tl.store(row_at, tl.sum(cost, 1), mask=there)
        tl.store(row_at + next_row, tl.sum(w, 1), mask=there)
        if not ALONE:
            tl.store(column_at, tl.sum(cost, 0), mask=here)
            tl.store(column_at + next_column, tl.sum(w, 0), mask=here)
        tl.store(at, (w * (1.0 + ratio)).to(kind), mask=both)
    else:
        hardest, where = tl.max(s, 1, return_indices=True)
        tl.store(row_at, hardest, mask=there)
        tl.store(row_at + next_row, (where + across * ACROSS).to(tl.float32), mask=there)
        hardest, where = tl.max(s, 0, return_indices=True)
        tl.store(column_at, hardest, mask=here)
        place = (where + down * DOWN + first).to(tl.float32)
        tl.store(column_at + next_column, place, mask=here)
        if RULE != "hardest":
            r = tl.load(of_rows + row, mask=there, other=0.0)
            count, total = _part_of_set(s, r[:, None], 1, RULE, steepness, CLOSED)
            tl.store(row_at + 2 * next_row, count, mask=there)
            tl.store(row_at + 3 * next_row, total, mask=there)
            c = tl.load(of_columns + column, mask=here, other=0.0)
            count, total = _part_of_set(s, c[None, :], 0, RULE, steepness, CLOSED)
            tl.store(column_at + 2 * next_column, count, mask=here)
            tl.store(column_at + 3 * next_column, total, mask=here)
