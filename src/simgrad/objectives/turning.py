"""Vectors of one length, and the way back, on a GPU: one pass each over many (`passes.py`)."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simgrad.core import gpu

_MANY = 2**23  # numbers that are worth a compilation
_WIDEST = 2**11  # what a program can hold of a vector
_DOWN = 4  # vectors to a program


class Lengthened(NamedTuple):
    """Vectors of one length: the root of the scale."""

    unit: Tensor
    used: Tensor  # the same in the precision of products
    norms: Tensor  # (rows, 1) the lengths they had
    divisors: Tensor  # (rows, 1) what they were divided by


def lengthen(
    given: Tensor, scale: Tensor | float, kind: torch.dtype, tiny: float
) -> Lengthened | None:
    """What `embeddings.py` does to vectors before they are multiplied; `given` are used up.

    None where there is no kernel for it.
    """
    (rows, width), exact = given.shape, torch.float32
    call = ("lengthen", given.device, given.dtype, kind, width, isinstance(scale, float), rows)
    if given.dtype not in (exact, torch.bfloat16) or kind not in (exact, torch.bfloat16):
        return None
    if not _suits(given, scale, call):
        return None
    unit = given if given.dtype == exact else torch.empty_like(given, dtype=exact)
    used = unit
    if kind != exact:
        used = given if given.dtype == kind else torch.empty_like(given, dtype=kind)
    norms = unit.new_empty(rows, 1)
    divisors = torch.empty_like(norms)
    inputs = given, unit, used, norms, divisors, scale, rows, width, tiny
    done = _launch("lengthen", call, scale, inputs, ROUNDED=kind != exact)
    return Lengthened(unit, used, norms, divisors) if done else None


def turn(gradients: Tensor, unit: Tensor, divisors: Tensor, scale: Tensor | float) -> Tensor | None:
    """In place: gradients by unit vectors become gradients by what was given, see `embeddings.py`.

    Returns (rows, 1) products of vectors and gradients; None where there is no kernel for it.
    """
    rows, width = gradients.shape
    call = ("turn", gradients.device, width, isinstance(scale, float), rows)
    if gradients.dtype != torch.float32 or not _suits(gradients, scale, call):
        return None
    along = gradients.new_empty(rows, 1)
    inputs = gradients, unit, divisors, along, scale, rows, width
    return along if _launch("turn", call, scale, inputs) else None


def _suits(x: Tensor, scale: Tensor | float, call: tuple[Hashable, ...]) -> bool:
    if not x.is_cuda or x.numel() < _MANY or x.shape[1] > _WIDEST:
        return False
    if isinstance(scale, Tensor) and scale.device != x.device:
        return False
    return gpu.capable(x.device) and gpu.ready(str(call[0]), call)


def _launch(
    kernel: str, call: Hashable, scale: Tensor | float, inputs: tuple[Any, ...], **named: bool
) -> bool:
    """Whether it ran. A kernel that does not leaves its inputs as they are."""
    rows, width = inputs[0].shape
    across = 1 << (width - 1).bit_length()
    try:
        from simgrad.objectives import passes

        launch: Any = getattr(passes, kernel)[(-(-rows // _DOWN),)]
        with torch.cuda.device(inputs[0].device):
            launch(
                *inputs, **named, KNOWN=isinstance(scale, float), DOWN=_DOWN, ACROSS=across,
                num_warps=4,
            )  # fmt: skip
    except Exception as error:  # whatever a compiler may raise
        gpu.give_up(kernel, f"{kernel} (vectors)", error)
        return False
    gpu.ran(call)
    return True
