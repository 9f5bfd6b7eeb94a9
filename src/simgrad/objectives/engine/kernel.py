"""The kernel that formulas are printed into: a tile of similarities, summed up and weighed.

A program multiplies a tile of images with a tile of texts and applies the formulas to the result,
for both directions. What is written is the tile's part of the totals and, in half precision where
the inputs are, its weights: the similarities themselves never reach memory.
"""

import linecache
import textwrap
from functools import cache
from typing import Any

from simgrad.core import gpu

_HEAD = """
import triton
import triton.language as tl

# An uneven block or batch needs no kernel of its own, nor does a tensor that lies anywhere.
@triton.jit(
    do_not_specialize=[
        "owner", "apart", "apart_from", "bias", "of_rows", "of_columns", "row_factors",
        "column_factors", "row_parts", "column_parts", "first_row", "first_column", "rows",
        "beside_rows", "beside_columns", "row_stride", "column_stride", "row_slot", "column_slot",
    ]
)
def kernel(
    x,  # (images, width) of which this block has `rows` from `first_row` on
    y,  # (texts, width) of which it has `columns` from `first_column` on
    owner,  # (texts,) the image each text belongs to, if any
    apart,  # (pairs, 2) further pairs that are no negatives, sorted by tile,
    apart_from,  # (tiles + 1,) and where those of each tile begin
    bias,  # one number
    of_rows,  # (told, images) what a query is told, `beside_rows` apart: of images,
    of_columns,  # (told, texts) and of texts
    row_factors,  # (images,) of weights, where some queries are silent
    column_factors,  # (texts,)
    row_parts,  # (slots, tiles of all texts, rows): parts `row_stride` apart, slots `row_slot`
    column_parts,  # (slots, tiles down, texts)
    weights,  # (rows, columns)
    first_row,
    first_column,
    rows,
    columns,
    width,
    beside_rows,
    beside_columns,
    row_stride,
    column_stride,
    row_slot,
    column_slot,
    row_factor,
    column_factor,
    OWN: tl.constexpr,  # some texts of the block may belong to its images
    APART: tl.constexpr,
    BIASED: tl.constexpr,
    FACTORS: tl.constexpr,  # queries have factors of their own
    PRECISION: tl.constexpr,
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
            a, b = x.load([first_row + top, done]), y.load([first_column + left, done])
            s = tl.dot(a, b.T, s, input_precision=PRECISION)
    else:
        k = tl.arange(0, WIDE)
        x_row = first_row + tl.minimum(row, rows - 1).to(tl.int64)
        y_row = first_column + tl.minimum(column, columns - 1).to(tl.int64)
        x_at = x + x_row[:, None] * width + k[None, :]
        y_at = y + y_row[None, :] * width + k[:, None]
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
    if OWN:
        belongs = tl.load(owner + first_column + column, mask=here, other=-1).to(tl.int32)
        belongs -= first_row
        own = tl.max(((belongs >= top) & (belongs < top + DOWN)).to(tl.int32), 0) > 0
        if own | (top + DOWN > rows) | (left + ACROSS > columns):
            negative = (row[:, None] != belongs[None, :]) & there[:, None] & here[None, :]
            s = tl.where(negative, s, -float("inf"))
    elif (top + DOWN > rows) | (left + ACROSS > columns):
        s = tl.where(there[:, None] & here[None, :], s, -float("inf"))
    if APART:
        place = down * tiles_across + across
        for pair in range(tl.load(apart_from + place), tl.load(apart_from + place + 1)):
            i, j = tl.load(apart + 2 * pair), tl.load(apart + 2 * pair + 1)
            s = tl.where((row[:, None] == i) & (column[None, :] == j), -float("inf"), s)

    row_at = row_parts + (first_column // ACROSS + across) * row_stride + row
    column_at = column_parts + down * column_stride + first_column + column
    at = weights + row.to(tl.int64)[:, None] * columns + column[None, :]
    both = there[:, None] & here[None, :]
    if FACTORS:
        fr = tl.load(row_factors + first_row + row, mask=there, other=0.0)[:, None]
        fc = tl.load(column_factors + first_column + column, mask=here, other=0.0)[None, :]
    else:
        fr, fc = row_factor, column_factor
"""


def source(uniform: tuple[bool, ...], lines: list[str]) -> str:
    """The text of a kernel.

    `uniform`: for everything that queries are told, whether it is the same for all of them.
    """
    load = []
    for k, same in enumerate(uniform):
        if same:
            load.append(f"u{k} = tl.load(of_rows + {k} * beside_rows)")
            continue
        row = f"{k} * beside_rows + first_row + row"
        column = f"{k} * beside_columns + first_column + column"
        load.append(f"r{k} = tl.load(of_rows + {row}, mask=there, other=0.0)")
        load.append(f"c{k} = tl.load(of_columns + {column}, mask=here, other=0.0)")
    return _HEAD + textwrap.indent("\n".join([*load, *lines]), "    ") + "\n"


@cache
def compiled(text: str) -> Any:
    """The kernel of a text. Triton reads the source of what it compiles, so it must be found."""
    formulas = gpu.kernels("simgrad.objectives.engine.formulas")
    file = f"<simgrad kernel {len(_texts)}>"
    _texts.append(text)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {n: f for n, f in vars(formulas).items() if not n.startswith("__")}
    exec(compile(text, file, "exec"), names)
    return names["kernel"]


_texts: list[str] = []
