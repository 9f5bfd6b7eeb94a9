"""Objectives inside torch.compile, `torch.func` and forward-mode differentiation.

A compiled program has the objective as a single call with its gradient, one operator that a
compiler does not look into. What the engine does in it, blocks, kernels, checks of its inputs, is
done when the program runs.

Under `torch.func` tensors are wrapped, and an ordinary value with a gradient attached would be a
constant. So the whole calculation is one function, which PyTorch hands plain tensors, with its
derivative in either direction. What has no meaning is refused in words: `vmap`, and second
derivatives.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.tensors import is_transformed
from simgrad.objectives.engine.work import Given
from simgrad.objectives.pairs import Offline
from simgrad.objectives.positives import Positives

_rules: WeakValueDictionary[str, Rule] = WeakValueDictionary()
_numbers = count()
# (rule, images, texts, what belongs to them, scale, bias, learned) -> value, gradients
Weigh = Callable[..., list[Tensor | None]]
_weigh: list[Weigh] = []


def name_of(rule: Rule) -> str:
    """What a compiled program calls an objective."""
    name = f"{type(rule).__name__}-{next(_numbers)}"
    _rules[name] = rule
    return name


def serve(weigh: Weigh) -> Weigh:
    """Decorator: this is what the operator does."""
    _weigh.append(weigh)
    return weigh


@torch.library.custom_op("simgrad::weigh", mutates_args=())
def operator(
    name: str,
    images: Tensor,
    texts: Tensor,
    positives: Tensor | None,
    ignore: Tensor | None,
    weights: Tensor | None,
    offline: list[Tensor],
    scale: Tensor | None,
    bias: Tensor | None,
    learned: bool,
    block: int,
) -> list[Tensor]:
    """The value; gradients by images, texts, scale, bias and what is offline, empty if unwanted."""
    rule = _rules.get(name)
    if rule is None:
        raise InputError(
            f"the objective '{name}' of a compiled program is gone: keep a reference to it."
        )
    given = Given(positives, Offline(*offline) if offline else None, ignore, weights, block or None)
    found = _weigh[0](rule, images, texts, given, scale, bias, learned)
    value = found[0]
    assert value is not None
    # Nothing that an operator returns may share memory.
    return [value.new_empty(0) if part is None else part.clone() for part in found]


@operator.register_fake
def _(
    name: str,
    images: Tensor,
    texts: Tensor,
    positives: Tensor | None,
    ignore: Tensor | None,
    weights: Tensor | None,
    offline: list[Tensor],
    scale: Tensor | None,
    bias: Tensor | None,
    learned: bool,
    block: int,
) -> list[Tensor]:
    kind = torch.promote_types(torch.promote_types(images.dtype, texts.dtype), torch.float32)
    like = [
        images.new_empty((), dtype=kind),
        *(torch.empty_like(x, dtype=kind) for x in (images, texts)),
    ]
    like += [images.new_empty((), dtype=kind) if learned else images.new_empty(0, dtype=kind)]
    like += [images.new_empty(() if bias is not None else 0, dtype=kind)]
    return like + [torch.empty_like(x, dtype=kind) for x in offline]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, images, texts, _, _, _, offline, scale, bias, learned, _ = inputs
    ctx.save_for_backward(*output[1:])
    ctx.kinds = [x.dtype for x in (images, texts, *offline)]
    ctx.affine = [None if x is None else (x.dtype, x.device) for x in (scale, bias)]
    ctx.learned = learned


def _backward(ctx: Any, above: list[Tensor]) -> tuple[Any, ...]:
    factor = above[0]
    on_images, on_texts, on_scale, on_bias, *on_offline = ctx.saved_tensors
    first = [(factor * g).to(k) for g, k in zip((on_images, on_texts), ctx.kinds[:2], strict=True)]
    rest = [(factor * g).to(k) for g, k in zip(on_offline, ctx.kinds[2:], strict=True)]
    scale = (factor * on_scale).to(ctx.affine[0][0]) if ctx.affine[0] and ctx.learned else None
    bias = (factor * on_bias).to(ctx.affine[1][0]) if ctx.affine[1] else None
    return None, *first, None, None, None, rest, scale, bias, None, None


operator.register_autograd(_backward, setup_context=_setup)


def weigh_compiled(
    rule_name: str,
    images: Tensor,
    texts: Tensor,
    given: Given,
    affine: tuple[Tensor | None, Tensor | None],
) -> Tensor:
    """The loss, as one call of a compiled program."""
    scale, bias = affine
    learned = scale is not None and scale.requires_grad
    if isinstance(given.positives, Positives):
        raise InputError("inside torch.compile, give `positives` as a tensor.")
    result: list[Tensor] = operator(
        rule_name, images, texts, given.positives, given.ignore, given.weights,
        list(given.offline or ()), scale, bias, learned, given.block or 0,
    )  # fmt: skip
    return result[0]


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
