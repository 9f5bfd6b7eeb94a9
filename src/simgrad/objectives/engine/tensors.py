"""Small tensor helpers of the frame: precision, checks, and a value with given derivatives."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from simgrad.core.errors import InputError, NotFinite

_HALF = (torch.float16, torch.bfloat16)
# Numbers of a temporary: 1 MiB stays near a processor, 32 MiB keep a GPU busy.
_NEAR = {"cpu": 2**18, "cuda": 2**23}


def at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _HALF else x


def constant(value: "float | Tensor") -> Tensor:
    """A number as a tensor, made once: it is never changed.

    On the CPU, whatever device is the default when it is first asked for.
    """
    if isinstance(value, Tensor):  # a parameter of several batches (`several.py`)
        return value
    # A compiler warns of what remembers, and a number is a constant of its program anyway.
    return _number(value) if torch.compiler.is_compiling() else _made(value)


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device="cpu")


_made = cache(_number)


# Not `x[index]` and `index_add_`: with several batches in one call these number the batches on the
# host, where a captured CUDA graph would read whatever stands there later.
def rows_at(x: Tensor, index: Tensor) -> Tensor:
    """x[index], along the first dimension."""
    return x.gather(0, _beside(index, x))


def add_at(x: Tensor, index: Tensor, more: Tensor) -> Tensor:
    """x, with rows added to those at `index`, in place."""
    return x.scatter_add_(0, _beside(index, more), more)


def _beside(index: Tensor, rows: Tensor) -> Tensor:
    if rows.dim() == 1:
        return index
    return index.view(-1, *(1,) * (rows.dim() - 1)).expand(-1, *rows.shape[1:])


def without_autocast(device: str) -> AbstractContextManager[None]:
    """Everything inside has the precision it is written in."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else _NOTHING


_NOTHING = nullcontext()


def product_type(x: Tensor, y: Tensor) -> torch.dtype:
    """In which precision similarities of vectors are multiplied; sums are float32 at least.

    Rounding unit vectors to bfloat16 moves a similarity by some 1e-5, while half-precision
    products kept in half precision, as autocast has them, move it by 1e-3. Like autocast, this
    leaves float64 as it is.
    """
    kind = torch.promote_types(x.dtype, y.dtype)
    half = kind in _HALF or (kind == torch.float32 and torch.is_autocast_enabled("cuda"))
    return torch.bfloat16 if x.is_cuda and half else _exact(kind)


def exact_type(x: Tensor) -> torch.dtype:
    """The precision of everything but products: that of the inputs, float32 at least."""
    return _exact(x.dtype)


def _exact(kind: torch.dtype) -> torch.dtype:
    return torch.float32 if kind in _HALF else kind


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a @ b, in float32 at least."""
    if a.dtype == torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32, out=out)
    return torch.mm(a, b, out=out)


def chunks(rows: int, like: Tensor) -> list[slice]:
    """Rows as wide as those of `like` that are worked together, so that temporaries stay small."""
    many = max(1, _NEAR.get(like.device.type, 2**18) // max(1, like.shape[1]))
    return [slice(start, min(rows, start + many)) for start in range(0, rows, many)] or [slice(0)]


def add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """In place: to += a @ b."""
    if a.dtype != torch.bfloat16:
        to.addmm_(a, b)
    elif _adds_to_float32(a.device):
        torch.addmm(to, a, b, out_dtype=torch.float32, out=to)
    else:
        to.add_(product(a, b))


@cache
def _adds_to_float32(device: torch.device) -> bool:
    """Whether a product in half precision can be added to what is float32: not before torch 2.10,
    and not on a CPU."""
    a, to = (torch.ones(16, 16, device=device, dtype=t) for t in (torch.bfloat16, torch.float32))
    try:
        torch.addmm(to, a, a, out_dtype=torch.float32, out=to)
    except (RuntimeError, TypeError):
        return False
    return True


def may_check(x: Tensor) -> bool:
    """Checks read values back, which a CUDA graph being captured cannot do."""
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


class Readback:
    """A number on its way from a GPU. To read it is to wait for it, not for later work."""

    def __init__(self, number: Tensor) -> None:
        self.number = number.to("cpu", non_blocking=True)
        self.arrived: torch.cuda.Event | None = None
        if number.is_cuda:
            self.arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.arrived.record(torch.cuda.current_stream(number.device))

    def read(self) -> float:
        if self.arrived is not None:
            self.arrived.synchronize()
        return float(self.number)


def check_finite(x: Tensor, what: str, check: bool) -> None:
    if check and not torch.isfinite(x.sum()):
        bad = (~torch.isfinite(x)).nonzero()
        if len(bad):
            row = int(bad[0, 0])
            raise NotFinite(
                f"{what}: row {row} holds {float(x[tuple(bad[0])])} ({len(bad)} such entries in "
                "all). Look for a diverged model, a zero vector normalised without epsilon, or "
                "float16 overflow."
            )


def is_transformed(inputs: Sequence[Tensor | None]) -> bool:
    """Whether a transform of torch.func, or forward-mode differentiation, looks at any of them."""
    there = [x for x in inputs if x is not None]
    if torch._C._are_functorch_transforms_active():
        return any(map(torch._C._functorch.is_functorch_wrapped_tensor, there))
    if forward_ad._current_level < 0:
        return False
    return any(_tangent(x) is not None for x in there)


def _tangent(x: Tensor) -> Tensor | None:
    found: Tensor | None = forward_ad.unpack_dual(x).tangent  # type: ignore[no-untyped-call]
    return found


def is_followed(x: Tensor | None) -> bool:
    """Whether anybody asks for the derivative by this."""
    return x is not None and (x.requires_grad or is_transformed([x]))


_SECOND = (
    "objectives have no second derivatives: weights are written down, not derived. Call backward "
    "without create_graph=True."
)


class _Attach(torch.autograd.Function):
    """A value with given derivatives; what comes from above multiplies them."""

    @staticmethod
    def forward(ctx: Any, value: list[Tensor], count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        ctx.dtypes = [x.dtype for x in tensors[:count]]
        return value[0]  # in a list it is no input, which would have to be copied

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise InputError(_SECOND)
        # The product is taken in the gradients' precision, then rounded to the inputs'.
        below = [_times(above[0], g, t) for g, t in zip(ctx.saved_tensors, ctx.dtypes, strict=True)]
        return (None, None, *below, *(None for _ in below))


def check_matrix(x: Any, what: str, shape: str) -> None:
    """Refuse what is no matrix of numbers."""
    if isinstance(x, Tensor) and torch._C._functorch.is_batchedtensor(x):
        # Batches of batches have a similarity matrix each: that is a loop.
        raise InputError("objectives do not work under torch.vmap: call them in a loop instead.")
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        got = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"{what} must be a floating-point tensor {shape}, not {got}.")
    if x.is_meta:
        raise InputError(f"{what} lies on the device 'meta', which holds no numbers.")


def _times(factor: Tensor, x: Tensor, kind: torch.dtype) -> Tensor:
    if kind == x.dtype:
        return factor * x
    return torch.mul(factor, x, out=torch.empty_like(x, dtype=kind))  # in one pass


def attach(value: Tensor, inputs: list[Tensor | None], gradients: list[Tensor | None]) -> Tensor:
    """`value` with derivative gradients[k] for inputs[k]; inputs that need none are skipped."""
    used = [
        (x, g) for x, g in zip(inputs, gradients, strict=True) if x is not None and x.requires_grad
    ]
    if not used or not torch.is_grad_enabled():
        return value
    result: Tensor = _Attach.apply([value], len(used), *(x for x, _ in used), *(g for _, g in used))  # type: ignore[no-untyped-call]
    return result


# Of what multiplies the values of each query: the values, and gradients by the inputs.
Each = Callable[..., tuple[Tensor, list[Tensor | None]]]


class _AttachEach(torch.autograd.Function):
    """Values of each query; their gradient is calculated once it is known what multiplies them."""

    @staticmethod
    def forward(
        ctx: Any, calculate: Each, counts: tuple[int, int], *inputs: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.calculate = calculate
        ctx.save_for_backward(*inputs)
        like = next(x for x in inputs if x is not None)
        ones = [torch.ones(n, device=like.device, dtype=exact_type(like)) for n in counts]
        return tuple(calculate(tuple(ones), *inputs)[0].tensor_split([counts[0]]))

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise InputError(_SECOND)
        inputs = ctx.saved_tensors
        _, gradients = ctx.calculate(above, *inputs)
        both = zip(gradients, inputs, strict=True)
        below = [None if x is None or g is None else g.to(x.dtype) for g, x in both]
        return None, None, *below


def attach_each(
    calculate: Each, inputs: list[Tensor | None], counts: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Values of image queries and of caption queries, as `calculate` finds them and their
    gradients by the inputs."""
    found: tuple[Tensor, Tensor] = _AttachEach.apply(calculate, counts, *inputs)  # type: ignore[no-untyped-call]
    return found


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
