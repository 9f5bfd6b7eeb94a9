"""Triton kernels: one step of a GRU forward and backward, for all rows of several models.

A program works WIDE of the `hidden` columns of one row. Rows of a model lie together; models lie as
far apart as the strides say.

Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


# Other numbers of rows, and captions of another length, need no kernels of their own.
@triton.jit(
    do_not_specialize=["step", "rows", "after_rows", "inputs_apart", "states_apart", "gates_apart"]
)
def cell(
    lengths,  # (models, captions)
    inputs,  # (models, rows, 3 hidden)
    products,  # (models, rows, 3 hidden), contiguous
    b_input,  # (models, 3 hidden)
    b_state,
    before,  # (models, rows, hidden)
    after,  # (models, after_rows, hidden), as far apart as those of before
    last,  # (models, captions, hidden) written where a caption ends here
    gates,  # (models, rows, 4 hidden)
    step,
    rows,
    after_rows,
    captions,
    hidden,
    inputs_apart,
    states_apart,
    gates_apart,
    WIDE: tl.constexpr,
):
    model, row = tl.program_id(0) // rows, tl.program_id(0) % rows
    model = model.to(tl.int64)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    here = column < hidden
    x = inputs + model * inputs_apart + row * 3 * hidden + column
    y = products + (model * rows + row) * 3 * hidden + column
    bx, by = b_input + model * 3 * hidden + column, b_state + model * 3 * hidden + column
    xr = tl.load(x, mask=here).to(tl.float32) + tl.load(bx, mask=here)
    xz = tl.load(x + hidden, mask=here).to(tl.float32) + tl.load(bx + hidden, mask=here)
    xn = tl.load(x + 2 * hidden, mask=here).to(tl.float32) + tl.load(bx + 2 * hidden, mask=here)
    hr = tl.load(y, mask=here).to(tl.float32) + tl.load(by, mask=here)
    hz = tl.load(y + hidden, mask=here).to(tl.float32) + tl.load(by + hidden, mask=here)
    hn = tl.load(y + 2 * hidden, mask=here).to(tl.float32) + tl.load(by + 2 * hidden, mask=here)
    reset, update = _sigmoid(xr + hr), _sigmoid(xz + hz)
    new = _tanh(xn + reset * hn)
    at = model * states_apart + row * hidden + column
    state = tl.load(before + at, mask=here).to(tl.float32)
    kind = after.dtype.element_ty
    state = (new + update * (state - new)).to(kind)
    # A row's number for all columns: a scalar's comparison is no mask for Triton's interpreter.
    number = row + 0 * column
    tl.store(after + at, state, mask=here & (number < after_rows))
    caption = model * captions + row
    ends = tl.load(lengths + caption + 0 * column, mask=here, other=0) == step + 1
    tl.store(last + caption * hidden + column, state.to(last.dtype.element_ty), mask=here & ends)
    g = gates + model * gates_apart + row * 4 * hidden + column
    tl.store(g, reset.to(kind), mask=here)
    tl.store(g + hidden, update.to(kind), mask=here)
    tl.store(g + 2 * hidden, new.to(kind), mask=here)
    tl.store(g + 3 * hidden, hn.to(kind), mask=here)


@triton.jit(
    do_not_specialize=["step", "rows", "back_rows", "states_apart", "gates_apart", "inputs_apart"]
)
def cell_back(
    lengths,  # (models, captions)
    above,  # (models, captions, hidden) of the states after the last words
    kept,  # (models, captions, hidden) what came by no product: read, and written
    back,  # (models, back_rows, hidden) what came by the product
    before,  # (models, rows, hidden)
    gates,  # (models, rows, 4 hidden)
    of_inputs,  # (models, rows, 3 hidden)
    of_products,
    step,
    rows,
    back_rows,
    captions,
    hidden,
    states_apart,
    gates_apart,
    inputs_apart,
    LARGEST: tl.constexpr,  # what is larger is cut off
    WIDE: tl.constexpr,
):
    model, row = tl.program_id(0) // rows, tl.program_id(0) % rows
    model = model.to(tl.int64)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    here = column < hidden
    caption = model * captions + row
    at = caption * hidden + column
    # One address for all: a scalar's comparison is no mask for Triton's interpreter.
    last = tl.load(lengths + caption + 0 * column, mask=here, other=0) == step + 1
    going_on = here & (row + 0 * column < back_rows)
    came = back + (model * back_rows + row) * hidden + column
    product = tl.load(came, mask=going_on, other=0.0).to(tl.float32)
    product = tl.minimum(tl.maximum(product, -LARGEST), LARGEST)
    total = tl.load(kept + at, mask=here, other=0.0) + product
    total += tl.load(above + at, mask=here & last, other=0.0)
    g = gates + model * gates_apart + row * 4 * hidden + column
    reset = tl.load(g, mask=here, other=0.0).to(tl.float32)
    update = tl.load(g + hidden, mask=here, other=0.0).to(tl.float32)
    new = tl.load(g + 2 * hidden, mask=here, other=0.0).to(tl.float32)
    hn = tl.load(g + 3 * hidden, mask=here, other=0.0).to(tl.float32)
    place = before + model * states_apart + row * hidden + column
    state = tl.load(place, mask=here, other=0.0).to(tl.float32)
    dz = total * (state - new) * update * (1 - update)
    dn = total * (1 - update) * (1 - new * new)
    dr = dn * hn * reset * (1 - reset)
    dh = tl.minimum(tl.maximum(dn * reset, -LARGEST), LARGEST)
    dz = tl.minimum(tl.maximum(dz, -LARGEST), LARGEST)
    dn = tl.minimum(tl.maximum(dn, -LARGEST), LARGEST)
    dr = tl.minimum(tl.maximum(dr, -LARGEST), LARGEST)
    kind = of_inputs.dtype.element_ty
    x = model * inputs_apart + row * 3 * hidden + column
    tl.store(of_inputs + x, dr.to(kind), mask=here)
    tl.store(of_inputs + x + hidden, dz.to(kind), mask=here)
    tl.store(of_inputs + x + 2 * hidden, dn.to(kind), mask=here)
    tl.store(of_products + x, dr.to(kind), mask=here)
    tl.store(of_products + x + hidden, dz.to(kind), mask=here)
    tl.store(of_products + x + 2 * hidden, dh.to(kind), mask=here)
    tl.store(kept + at, total * update, mask=here)
