"""The way back through the normalisation of many vectors on a GPU, in one pass (`passes.py`)."""

from typing import Any

import torch
from torch import Tensor

from simgrad.objectives import fused

_MANY = 2**22  # numbers that are worth a compilation
_WIDEST = 2**11  # what a program can hold of a vector


def turn(gradients: Tensor, unit: Tensor, divisors: Tensor, scale: Tensor | float) -> Tensor | None:
    """In place: gradients by unit vectors become gradients by what was given, see `embeddings.py`.

    Returns (rows, 1) products of vectors and gradients; None where there is no kernel for it.
    """
    (rows, width), known = gradients.shape, isinstance(scale, float)
    call = ("turn", gradients.device, width, known, rows)
    fits = gradients.is_cuda and gradients.dtype == torch.float32 and width <= _WIDEST
    if not fits or gradients.numel() < _MANY or not fused.capable(gradients.device):
        return None
    if not fused.ready("turn", call):
        return None
    along, down, across = gradients.new_empty(rows, 1), 4, 1 << (width - 1).bit_length()
    try:
        from simgrad.objectives.passes import turn as kernel

        launch: Any = kernel[(-(-rows // down),)]
        with torch.cuda.device(gradients.device):
            launch(
                gradients, unit, divisors, along, scale, rows, width, KNOWN=known, DOWN=down,
                ACROSS=across, num_warps=4,
            )  # fmt: skip
    except Exception as error:
        fused.give_up("turn", "gradients", error)
        return None
    fused.ran(call)
    return along
