"""From embeddings to gradients, without ever holding the whole similarity matrix.

The gradient is complete when the forward pass ends; `.backward()` only scales it. On a GPU,
half-precision inputs are multiplied in bfloat16, summed in float32.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine import fused, recorded
from simgrad.objectives.engine.dense import weigh_dense
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.passes import Alone, Passing, weigh_passes
from simgrad.objectives.engine.ring import Ring, Transport
from simgrad.objectives.engine.tensors import (
    Readback,
    attach,
    attach_each,
    check_finite,
    check_matrix,
    is_followed,
    is_transformed,
    may_check,
    product_type,
    without_autocast,
)
from simgrad.objectives.engine.tiles import PlainTiles
from simgrad.objectives.engine.transforms import (
    refuse_transforms,
    serve,
    weigh_compiled,
    weigh_functional,
)
from simgrad.objectives.engine.work import Given, Gradients, Unit, Work
from simgrad.objectives.pairs import Offline, join_offline, split_offline
from simgrad.objectives.positives import Positives


def weigh_embeddings(rule: Rule, images: Tensor, texts: Tensor, given: Given) -> Tensor:
    """The loss of a batch of embeddings, its gradient attached."""
    affine = rule.affine()
    if torch.compiler.is_compiling():
        return weigh_compiled(rule.handle, images, texts, given, affine)
    check_shapes(images, texts)
    kind = product_type(images, texts)  # autocast has a say in this, and in nothing else here
    offline = given.offline or ()
    inputs: list[Tensor | None] = [images, texts, *offline, *affine]
    if is_transformed(inputs):
        learned = is_followed(affine[0])

        def calculate(*plain: Tensor) -> tuple[Tensor, list[Tensor | None]]:
            result, gradients = _weighed(rule, _Inputs.of(plain, given, kind, learned))
            return result.value, gradients

        return weigh_functional(calculate, inputs)
    answer = None
    if images.is_cuda and all(part is None for part in given):
        with torch.no_grad(), without_autocast(images.device.type):
            answer = recorded.replay(rule, images, texts, affine, kind, _whole)
    if answer is None:
        learned = affine[0] is not None and affine[0].requires_grad
        result, gradients = _weighed(rule, _Inputs.of(inputs, given, kind, learned))
        return attach(result.value, inputs, gradients)
    check_total(answer.total, images, texts)
    return attach(answer.value, inputs, list(answer.gradients))


def weigh_each(
    rule: Rule, images: Tensor, texts: Tensor, given: Given, transport: Transport | None = None
) -> tuple[Tensor, Tensor]:
    """The value of each image query and of each caption query here, with its gradient.

    What multiplies a value multiplies its query's weights, which is known when the gradient is
    asked for: the batch is weighed once more then.
    """
    scale, bias = rule.affine()
    inputs: list[Tensor | None] = [images, texts, *(given.offline or ()), scale, bias]
    if torch.compiler.is_compiling() or is_transformed(inputs):
        raise InputError(
            "the values of each query do not work inside torch.compile or torch.func: call the "
            "objective outside, or without reduction='none'."
        )
    check_shapes(images, texts, spread=transport is not None)
    kind = product_type(images, texts)
    learned = scale is not None and scale.requires_grad

    def calculate(
        above: tuple[Tensor, Tensor], *plain: Tensor | None
    ) -> tuple[Tensor, list[Tensor | None]]:
        result, gradients = _weighed(
            rule, _Inputs.of(plain, given, kind, learned), transport, above
        )
        return result.values, gradients

    return attach_each(calculate, inputs, (len(images), len(texts)))


@serve
def _served(
    rule: Rule,
    images: Tensor,
    texts: Tensor,
    given: Given,
    scale: Tensor | None,
    bias: Tensor | None,
    learned: bool,
) -> list[Tensor | None]:
    """What a compiled program calls."""
    check_shapes(images, texts)
    offline, kind = given.offline or (), product_type(images, texts)
    inputs = _Inputs.of((images, texts, *offline, scale, bias), given, kind, learned)
    result, (by_images, by_texts, *rest, on_scale, on_bias) = _weighed(rule, inputs)
    return [result.value, by_images, by_texts, on_scale, on_bias, *rest]


class _Inputs(NamedTuple):
    """What a batch is weighed by."""

    images: Tensor
    texts: Tensor
    scale: Tensor | None
    bias: Tensor | None
    given: Given
    kind: torch.dtype  # of products
    learned: bool  # the scale wants a gradient

    @staticmethod
    def of(
        inputs: Sequence[Tensor | None], given: Given, kind: torch.dtype, learned: bool
    ) -> "_Inputs":
        images, texts, *drawn, scale, bias = inputs
        offline = Offline(*drawn) if drawn else None  # type: ignore[arg-type]
        assert images is not None
        assert texts is not None
        if offline is not None:
            given = given._replace(offline=offline)
        return _Inputs(images, texts, scale, bias, given, kind, learned)


@torch.no_grad()
def _weighed(
    rule: Rule,
    inputs: _Inputs,
    transport: Transport | None = None,
    above: tuple[Tensor, Tensor] | None = None,
) -> tuple[Gradients, list[Tensor | None]]:
    """The values; gradients by images, texts, what is offline, scale and bias."""
    images, texts, scale, bias, given, kind, learned = inputs
    with without_autocast(images.device.type):
        checking = may_check(images)
        unit = Unit(images, texts, scale, kind, learned)
        total = Readback(unit.norms.sum()) if checking else None
        if total is not None and transport is not None:
            check_total(total.read(), images, texts)  # before others wait for this process
        pairs = Positives.read(
            given.positives, len(images), len(texts), images.device, checking,
            given.ignore, given.weights,
        )  # fmt: skip
        outside = split_offline(rule, given.offline, pairs, unit.norms)
        passing: Passing = Alone()
        among = pairs
        if transport is not None:
            family = rule.elementwise()
            passing = ring = Ring(transport, pairs, family is not None and family.per_pair)
            among = ring.among(pairs)
        work = Work(
            rule, among, outside, unit.used, unit.exact, unit.scale,
            None if bias is None else bias.detach(), given.block, above,
        )  # fmt: skip
        result = choose(work, passing)
        on_scale = unit.go_back(result.vectors)
        offline_weights = join_offline(*result.outside, pairs)
        if total is not None and transport is None:
            check_total(total.read(), images, texts)
        split = result.vectors.tensor_split([len(images)])
        return result, [*split, *(offline_weights or ()), on_scale, result.bias]


def weigh_spread(
    rule: Rule, images: Tensor, texts: Tensor, given: Given, transport: Transport, factor: float
) -> Tensor:
    """The loss of a batch that lies on several processes, `factor` times its gradient attached."""
    scale, bias = rule.affine()
    inputs: list[Tensor | None] = [images, texts, *(given.offline or ()), scale, bias]
    refuse_transforms(inputs)
    learned, kind = scale is not None and scale.requires_grad, product_type(images, texts)
    result, found = _weighed(rule, _Inputs.of(inputs, given, kind, learned), transport)
    return attach(result.value, inputs, [None if g is None else g * factor for g in found])


def _whole(
    rule: Rule, given: Tensor, scale: Tensor | None, bias: Tensor | None, kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The loss of a square batch, images above texts, and its gradients: all that is recorded."""
    images, texts = given.tensor_split(2)
    unit = Unit(images, texts, scale, kind, scale is not None and scale.requires_grad)
    pairs = Positives.diagonal(len(images), given.device)
    work = Work(rule, pairs, (None, None), unit.used, unit.exact, unit.scale, bias)
    result = choose(work, Alone())
    return result.value, result.vectors, unit.go_back(result.vectors), result.bias


def choose(work: Work, passing: Passing) -> Gradients:
    """The way of working that suits the rule and the batch."""
    family = work.rule.elementwise()
    if family is None:
        return weigh_dense(work, passing)
    if (work.vectors.is_cuda or fused.INTERPRETED) and fused.suits(work, family):
        result = fused.weigh(work, family, passing)
        if result is not None:
            return result
    return weigh_passes(work, family, PlainTiles(work, family), passing)


def check_total(total: float, images: Tensor, texts: Tensor) -> None:
    """A sum over all vectors: if it is finite, so are they."""
    if not math.isfinite(total):
        check_finite(images.detach(), "images", True)
        check_finite(texts.detach(), "texts", True)


def check_shapes(images: Tensor, texts: Tensor, *, spread: bool = False) -> None:
    """`spread`: a share of a batch, of which there may be nothing here."""
    for what, x in (("images", images), ("texts", texts)):
        check_matrix(x, what, "(count, dimension)")
        if x.numel() == 0 and not (spread and x.shape[1]):
            raise InputError(f"{what} is empty: shape {tuple(x.shape)}.")
    if images.shape[1] != texts.shape[1]:
        raise InputError(
            f"images have {images.shape[1]} dimensions, texts {texts.shape[1]}: they must share a "
            "space."
        )
