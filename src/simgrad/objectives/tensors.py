"""Small tensor helpers of the frame: precision, checks, and a value with given derivatives."""

from typing import Any

import torch
from torch import Tensor

from simgrad.errors import InputError


def at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def product_type(x: Tensor, y: Tensor) -> torch.dtype:
    """In which precision similarities of x and y are multiplied; sums are float32 at least.

    Rounding unit vectors to bfloat16 moves a similarity by some 1e-5, while half-precision
    products kept in half precision, as autocast has them, move it by 1e-3.
    """
    half = (torch.float16, torch.bfloat16)
    if x.is_cuda and (x.dtype in half or y.dtype in half or torch.is_autocast_enabled("cuda")):
        return torch.bfloat16
    return exact_type(x, y)


def exact_type(x: Tensor, y: Tensor) -> torch.dtype:
    """The precision of everything but products: that of the inputs, float32 at least."""
    return torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, in float32 at least."""
    if a.dtype == torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a @ b


def add_product(to: Tensor, a: Tensor, b: Tensor, factor: float) -> None:
    """In place: to += factor * a @ b."""
    if a.dtype == torch.bfloat16:
        to.add_(product(a, b), alpha=factor)
    else:
        to.addmm_(a, b, alpha=factor)


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


def check_overflow(
    objective: object, weights: tuple[Tensor, ...], similarities: Tensor, check: bool
) -> None:
    """Weights must be numbers, in the precision that their gradient will have."""
    most = torch.finfo(similarities.dtype).max / len(weights)  # they will be added
    if not check or not similarities.numel():
        return
    if not max(float(torch.linalg.vector_norm(w, torch.inf)) for w in weights) <= most:
        low, high = similarities.detach().aminmax()
        raise InputError(
            f"{objective}: its weights overflow at these similarities ({float(low):.3g} to "
            f"{float(high):.3g}). It is meant for cosines, -1 to 1: normalise the vectors, use "
            "float32, or choose gentler parameters."
        )
