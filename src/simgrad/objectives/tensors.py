"""Small tensor helpers of the frame: precision, checks, and a value with given derivatives."""

from typing import Any

import torch
from torch import Tensor

from simgrad.errors import InputError


def at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return None if a is None or b is None else a + b


def may_check(x: Tensor) -> bool:
    """Checks read values back, which a CUDA graph being captured cannot do."""
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def check_finite(x: Tensor, what: str, check: bool) -> None:
    if check and not torch.isfinite(x.sum()):
        bad = (~torch.isfinite(x)).nonzero()
        if len(bad):
            row = int(bad[0, 0])
            raise InputError(
                f"{what}: row {row} holds {float(x[tuple(bad[0])])} ({len(bad)} such entries in "
                "all). Look for a diverged model, a zero vector normalised without epsilon, or "
                "float16 overflow."
            )


class _Attach(torch.autograd.Function):
    """A value with given derivatives; what comes from above multiplies them."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        ctx.dtypes = [x.dtype for x in tensors[:count]]
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Any:
        # The product is taken in the gradients' precision, then rounded to the inputs'.
        below = [(above[0] * g).to(t) for g, t in zip(ctx.saved_tensors, ctx.dtypes, strict=True)]
        return (None, None, *below, *(None for _ in below))


def attach(value: Tensor, inputs: list[Tensor | None], gradients: list[Tensor | None]) -> Tensor:
    """`value` with derivative gradients[k] for inputs[k]; inputs that need none are skipped."""
    used = [
        (x, g) for x, g in zip(inputs, gradients, strict=True) if x is not None and x.requires_grad
    ]
    if not used or not torch.is_grad_enabled():
        return value
    result: Tensor = _Attach.apply(value, len(used), *(x for x, _ in used), *(g for _, g in used))  # type: ignore[no-untyped-call]
    return result
