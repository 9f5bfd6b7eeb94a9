"""Objectives inside torch.compile: one operator that a compiler does not look into.

A compiled program has the objective as a single call, with its gradient. What the engine does in
it, blocks, kernels, checks of its inputs, is done when the program runs.
"""

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.forms import Rule
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
