"""Objectives under `torch.func` and forward-mode differentiation: `grad`, `jacrev`, `jvp`.

There tensors are wrapped, and an ordinary value with a gradient attached would be a constant. So
the whole calculation is one function, which PyTorch hands plain tensors, with its derivative in
either direction. What has no meaning is refused in words: `vmap`, and second derivatives.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.tensors import is_transformed

# Of plain tensors: the value, and its gradient by each of them.
Calculate = Callable[..., tuple[Tensor, Sequence[Tensor | None]]]
_SECOND = (
    "objectives have no second derivatives: weights are written down, not derived. Ask for one "
    "derivative alone: no create_graph=True, no hessian, no gradient of a gradient."
)


def refuse_transforms(inputs: Sequence[Tensor | None]) -> None:
    """For what several processes do together."""
    if is_transformed(inputs):
        raise InputError(
            "distributed objectives do not work under torch.func or forward-mode differentiation: "
            "call backward, or use the objective on one process."
        )


def weigh_functional(calculate: Calculate, inputs: Sequence[Tensor | None]) -> Tensor:
    """The value, whose derivatives are the gradients that `calculate` returns with it."""
    found = _Weigh.apply(calculate, *inputs)  # type: ignore[no-untyped-call]
    value: Tensor = found[0]
    return value


class _Weigh(torch.autograd.Function):
    @staticmethod
    def forward(calculate: Calculate, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        value, gradients = calculate(*inputs)
        kept = zip(inputs, gradients, strict=True)
        # Nobody asks for what is not there; in the type of the input, as derivatives are.
        return value, *(
            value.new_zeros(0) if x is None or g is None else g.to(x.dtype) for x, g in kept
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        gradients = output[1:]
        ctx.mark_non_differentiable(*gradients)
        ctx.there = [x is not None for x in inputs[1:]]
        followed = [x for x in inputs[1:] if x is not None]
        ctx.save_for_backward(*gradients, *followed)
        ctx.save_for_forward(*gradients)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        count = len(ctx.there)
        gradients, given = ctx.saved_tensors[:count], iter(ctx.saved_tensors[count:])
        below: list[Tensor | None] = []
        for there, gradient, wanted in zip(
            ctx.there, gradients, ctx.needs_input_grad[1:], strict=True
        ):
            x = next(given) if there else None
            use = wanted and x is not None and gradient.shape == x.shape
            below.append(_Times.apply(above[0], gradient, x) if use else None)  # type: ignore[no-untyped-call]
        return None, *below

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        parts = [
            (g * t).sum()
            for g, t in zip(ctx.saved_tensors, tangents[1:], strict=True)
            if t is not None and g.shape == t.shape
        ]
        total = sum(parts[1:], parts[0])
        return total, *(None for _ in tangents[1:])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        raise InputError("objectives do not work under torch.vmap: call them in a loop instead.")


class _Times(torch.autograd.Function):
    """What comes from above, times a gradient: a first derivative, and no more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(above: Tensor, gradient: Tensor, given: Tensor) -> Tensor:
        return above * gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        raise InputError(_SECOND)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise InputError(_SECOND)
