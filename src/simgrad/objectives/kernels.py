"""Triton kernels: similarities of a tile, summarised and weighed before they leave the registers.

A program multiplies a tile of images with a tile of texts and applies a rule's formulas to the
result, for both directions. What is written is the tile's part of the summaries and, in half
precision where the inputs are, its weights: the similarities themselves never reach memory. The
formulas (see also `formulas.py`) are those of the pieces in `triplet.py`, `ntxent.py`, ...: tests
hold the two together.

A tile's registers are scarce: where that saves some, weights are stored before sums are made.

Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl

from simgrad.objectives.formulas import (
    exp,
    hardest_of,
    is_inside,
    log_sum_exp,
    part_of_set,
    sigmoid_and_softplus,
    steps,
)


# An uneven block or batch needs no kernel of its own, nor does a tensor that lies anywhere.
@triton.jit(
    do_not_specialize=[
        "owner", "bias", "of_rows", "of_columns", "row_parts", "column_parts", "first", "rows",
        "beside", "row_stride", "column_stride",
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
    BOUNDED: tl.constexpr,  # exponentials are numbers as they are; a set's bound is one for all
    PRECISION: tl.constexpr,
    ALONE: tl.constexpr,  # one direction stands for both: ratio is 0
    EVEN: tl.constexpr,  # WIDE divides width
    DESCRIBED: tl.constexpr,  # x and y are descriptors: whole tiles are fetched by hardware
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

    top, left = down * DOWN, across * ACROSS
    row, column = top + tl.arange(0, DOWN), left + tl.arange(0, ACROSS)
    there, here = row < rows, column < columns
    s = tl.zeros((DOWN, ACROSS), dtype=tl.float32)
    # Beyond the edge are zeros or the last vector again; what comes of them is masked.
    if DESCRIBED:
        for done in range(0, width, WIDE):
            a, b = x.load([top, done]), y.load([left, done])
            s = tl.dot(a, b.T, s, input_precision=PRECISION)
    else:
        k = tl.arange(0, WIDE)
        x_at = x + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * width + k[None, :]
        y_at = y + tl.minimum(column, columns - 1).to(tl.int64)[None, :] * width + k[:, None]
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
    # Few tiles have a positive pair or an edge: the others mask nothing.
    belongs = tl.load(owner + column, mask=here, other=-1).to(tl.int32) - first
    own = tl.max(((belongs >= top) & (belongs < top + DOWN)).to(tl.int32), 0) > 0
    if own | (top + DOWN > rows) | (left + ACROSS > columns):
        negative = (row[:, None] != belongs[None, :]) & there[:, None] & here[None, :]
        s = tl.where(negative, s, -float("inf"))

    row_at = row_parts + across * row_stride + row
    column_at = column_parts + down * column_stride + column
    next_row, next_column = tiles_across * row_stride, tiles_down * column_stride
    at = weights + row.to(tl.int64)[:, None] * columns + column[None, :]
    both = there[:, None] & here[None, :]
    kind = weights.dtype.element_ty

    if RULE == "softmax-summary" or RULE == "softmax-keep":
        if BOUNDED:
            e = exp(s)
            if RULE == "softmax-keep":
                tl.store(at, e.to(kind), mask=both)
            tl.store(row_at, tl.sum(e, 1), mask=there)
            tl.store(column_at, tl.sum(e, 0), mask=here)
        else:
            tl.store(row_at, log_sum_exp(s, 1), mask=there)
            tl.store(column_at, log_sum_exp(s, 0), mask=here)
    elif RULE == "softmax":
        r = tl.load(of_rows + row, mask=there, other=0.0)
        c = tl.load(of_columns + column, mask=here, other=0.0)
        if BOUNDED:
            w = exp(s) * (exp(-r)[:, None] + (ratio * exp(-c))[None, :])
        else:
            w = exp(s - r[:, None]) + ratio * exp(s - c[None, :])
        tl.store(at, w.to(kind), mask=both)
    elif RULE == "rank-summary" or RULE == "rank-keep" or RULE == "rank":
        r = tl.load(of_rows + row, mask=there, other=0.0)
        c = tl.load(of_columns + column, mask=here, other=0.0)
        if RULE == "rank-keep":
            tl.store(at, s, mask=both)
        g, h = steps(s, r, c, BOUNDED)
        if RULE != "rank":
            tl.store(row_at, tl.sum(g, 1), mask=there)
            tl.store(row_at + next_row, tl.sum(g - g * g, 1), mask=there)
            tl.store(column_at, tl.sum(h, 0), mask=here)
            tl.store(column_at + next_column, tl.sum(h - h * h, 0), mask=here)
        else:
            r = tl.load(of_rows + beside + row, mask=there, other=0.0)
            c = tl.load(of_columns + beside + column, mask=here, other=0.0)
            w = (g - g * g) * r[:, None] + (h - h * h) * (ratio * c)[None, :]
            tl.store(at, w.to(kind), mask=both)
    elif RULE == "hinge":
        r = tl.load(of_rows + row, mask=there, other=0.0)[:, None]
        c = tl.load(of_columns + column, mask=here, other=0.0)[None, :]
        w = tl.where(s > r, 1.0, 0.0) + tl.where(s > c, ratio, 0.0)
        tl.store(at, w.to(kind), mask=both)
        cost = tl.maximum(s - r, 0.0)
        tl.store(row_at, tl.sum(cost, 1), mask=there)
        tl.store(row_at + next_row, tl.sum((cost > 0.0).to(tl.float32), 1), mask=there)
        cost = tl.maximum(s - c, 0.0)
        tl.store(column_at, tl.sum(cost, 0), mask=here)
        tl.store(column_at + next_column, tl.sum((cost > 0.0).to(tl.float32), 0), mask=here)
    elif RULE == "sigmoid":
        w, cost = sigmoid_and_softplus(s)
        tl.store(row_at, tl.sum(cost, 1), mask=there)
        tl.store(row_at + next_row, tl.sum(w, 1), mask=there)
        if not ALONE:
            tl.store(column_at, tl.sum(cost, 0), mask=here)
            tl.store(column_at + next_column, tl.sum(w, 0), mask=here)
        tl.store(at, (w * (1.0 + ratio)).to(kind), mask=both)
    else:
        hardest, where = hardest_of(s, column[None, :], 1)
        tl.store(row_at, hardest, mask=there)
        tl.store(row_at + next_row, where.to(tl.float32), mask=there)
        hardest, where = hardest_of(s, row[:, None], 0)
        tl.store(column_at, hardest, mask=here)
        tl.store(column_at + next_column, (where + first).to(tl.float32), mask=here)
        if RULE != "hardest":
            row_at, column_at = row_at + 2 * next_row, column_at + 2 * next_column
            if BOUNDED:
                inside = is_inside(s, tl.load(of_rows), CLOSED)
                if RULE == "hardest-linear":
                    part, one = tl.where(inside, s, 0.0), inside.to(tl.float32)
                else:
                    part = tl.where(inside, exp(s * steepness), 0.0)
                    one = (part > 0.0).to(tl.float32)
                tl.store(row_at, tl.sum(one, 1), mask=there)
                tl.store(row_at + next_row, tl.sum(part, 1), mask=there)
                tl.store(column_at, tl.sum(one, 0), mask=here)
                tl.store(column_at + next_column, tl.sum(part, 0), mask=here)
            else:
                r = tl.load(of_rows + row, mask=there, other=0.0)
                inside = is_inside(s, r[:, None], CLOSED)
                tl.store(row_at, tl.sum(inside.to(tl.float32), 1), mask=there)
                total = part_of_set(s, inside, 1, RULE, steepness)
                tl.store(row_at + next_row, total, mask=there)
                c = tl.load(of_columns + column, mask=here, other=0.0)
                inside = is_inside(s, c[None, :], CLOSED)
                tl.store(column_at, tl.sum(inside.to(tl.float32), 0), mask=here)
                total = part_of_set(s, inside, 0, RULE, steepness)
                tl.store(column_at + next_column, total, mask=here)
