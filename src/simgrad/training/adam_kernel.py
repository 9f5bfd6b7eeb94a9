"""Triton kernel: a step of Adam for one parameter of several models, each with its own settings.

A program works BLOCK numbers of one model.

Import this where Triton is installed.
"""

# Triton reads the annotations and the source of a kernel: what it calls has no types to check.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["models"])
def adam(
    weights,  # (models, count): changed
    gradient,  # (models, count) of any precision
    mean,  # (models, count): changed
    square,  # (models, count): changed
    factor,  # (models,) of the gradient
    values,  # (7, models): rate, root of the correction, betas, epsilon, L2, what decay leaves
    count,
    models,
    BLOCK: tl.constexpr,
):
    model = tl.program_id(1).to(tl.int64)
    own = values + model
    rate, root = tl.load(own), tl.load(own + models)
    beta1, beta2 = tl.load(own + 2 * models), tl.load(own + 3 * models)
    epsilon, l2 = tl.load(own + 4 * models), tl.load(own + 5 * models)
    left = tl.load(own + 6 * models)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = place < count
    at = model * count + place
    w = tl.load(weights + at, mask=here)
    g = tl.load(gradient + at, mask=here).to(tl.float32) * tl.load(factor + model) + w * l2
    m = tl.load(mean + at, mask=here)
    m += (g - m) * (1 - beta1)
    v = tl.load(square + at, mask=here) * beta2 + g * g * (1 - beta2)
    tl.store(mean + at, m, mask=here)
    tl.store(square + at, v, mask=here)
    w = w * left - rate * m / (tl.sqrt(v) / root + epsilon)
    tl.store(weights + at, w, mask=here)
