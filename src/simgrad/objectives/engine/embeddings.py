"""From embeddings to gradients, without ever holding the whole similarity matrix.

The gradient is complete when the forward pass ends; `.backward()` only scales it. On a GPU,
half-precision inputs are multiplied in bfloat16, summed in float32.
"""

import math

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine import fused, recorded
from simgrad.objectives.engine.compiled import serve, weigh_compiled
from simgrad.objectives.engine.dense import weigh_dense
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.functional import (
    is_followed,
    is_transformed,
    refuse_transforms,
    weigh_functional,
)
from simgrad.objectives.engine.passes import Alone, Passing, weigh_passes
from simgrad.objectives.engine.ring import Ring, Transport
from simgrad.objectives.engine.tensors import (
    Readback,
    attach,
    check_finite,
    check_matrix,
    may_check,
    product_type,
    without_autocast,
)
from simgrad.objectives.engine.tiles import PlainTiles
from simgrad.objectives.engine.vectors import Unit
from simgrad.objectives.engine.work import Gradients, Work
from simgrad.objectives.offline_similarities import Offline, join_offline, split_offline
from simgrad.objectives.positives import Positives


def weigh_embeddings(
    rule: Rule,
    images: Tensor,
    texts: Tensor,
    positives: "Tensor | Positives | None",
    offline: Offline | None,
    ignore: Tensor | None,
    block: int | None,
) -> Tensor:
    """The loss of a batch of embeddings, its gradient attached."""
    affine = rule.affine()
    if torch.compiler.is_compiling():
        if isinstance(positives, Positives):
            raise InputError("inside torch.compile, give `positives` as a tensor.")
        return weigh_compiled(rule.handle, images, texts, positives, offline, ignore, affine, block)
    check_shapes(images, texts)
    kind = product_type(images, texts)  # autocast has a say in this, and in nothing else here
    inputs: list[Tensor | None] = [images, texts, *(offline or ()), *affine]
    if is_transformed(inputs):
        learned = is_followed(affine[0])

        def calculate(*plain: Tensor) -> tuple[Tensor, list[Tensor | None]]:
            x, y, *drawn, scale, bias = plain
            mined = Offline(*drawn) if drawn else None
            with torch.no_grad(), without_autocast(x.device.type):
                value, by_images, by_texts, on_scale, on_bias, *rest = _weighed(
                    rule, x, y, positives, mined, ignore, kind, (scale, bias), learned, block
                )
            assert value is not None
            return value, [by_images, by_texts, *rest, on_scale, on_bias]

        return weigh_functional(calculate, inputs)
    with torch.no_grad(), without_autocast(images.device.type):
        answer = None
        if positives is None and offline is None and ignore is None and block is None:
            answer = recorded.replay(rule, images, texts, affine, kind, _whole)
        if answer is None:
            learned = affine[0] is not None and affine[0].requires_grad
            value, by_images, by_texts, on_scale, on_bias, *rest = _weighed(
                rule, images, texts, positives, offline, ignore, kind, affine, learned, block
            )
    if answer is None:
        assert value is not None
        return attach(value, inputs, [by_images, by_texts, *rest, on_scale, on_bias])
    check_total(answer.total, images, texts)
    return attach(answer.value, inputs, list(answer.gradients))


@serve
@torch.no_grad()
def _served(
    rule: Rule,
    images: Tensor,
    texts: Tensor,
    positives: Tensor | None,
    offline: list[Tensor],
    ignore: Tensor | None,
    scale: Tensor | None,
    bias: Tensor | None,
    learned: bool,
    block: int | None,
) -> list[Tensor | None]:
    """What a compiled program calls."""
    check_shapes(images, texts)
    given = Offline(*offline) if offline else None
    kind = product_type(images, texts)
    with without_autocast(images.device.type):
        return _weighed(
            rule, images, texts, positives, given, ignore, kind, (scale, bias), learned, block
        )


def _weighed(
    rule: Rule,
    images: Tensor,
    texts: Tensor,
    positives: "Tensor | Positives | None",
    offline: Offline | None,
    ignore: Tensor | None,
    kind: torch.dtype,
    affine: tuple[Tensor | None, Tensor | None],
    learned: bool,
    block: int | None,
) -> list[Tensor | None]:
    """The value; gradients by images, texts, scale, bias, and what is offline."""
    checking, bias = may_check(images), affine[1]
    unit = Unit(images, texts, affine[0], kind, learned)
    total = Readback(unit.norms.sum()) if checking else None
    pairs = Positives.read(positives, len(images), len(texts), images.device, checking, ignore)
    outside = split_offline(rule, offline, pairs, unit.norms)
    work = Work(
        rule, pairs, outside, unit.used, unit.exact, unit.scale,
        None if bias is None else bias.detach(), block,
    )  # fmt: skip
    result = choose(work, Alone())
    on_scale = unit.go_back(result.vectors)
    offline_weights = join_offline(*result.outside, pairs)
    if total is not None:
        check_total(total.read(), images, texts)
    split = result.vectors.tensor_split([len(images)])
    return [result.value, *split, on_scale, result.bias, *(offline_weights or ())]


def weigh_spread(
    rule: Rule,
    images: Tensor,
    texts: Tensor,
    positives: "Tensor | Positives | None",
    offline: Offline | None,
    ignore: Tensor | None,
    transport: Transport,
    factor: float,
) -> Tensor:
    """The loss of a batch that lies on several processes, `factor` times its gradient attached."""
    scale, bias = rule.affine()
    refuse_transforms([images, texts, *(offline or ()), scale, bias])
    kind = product_type(images, texts)
    with torch.no_grad(), without_autocast(images.device.type):
        unit = Unit(images, texts, scale, kind, scale is not None and scale.requires_grad)
        check_total(float(unit.norms.sum()), images, texts)
        pairs = Positives.read(positives, len(images), len(texts), images.device, True, ignore)
        outside = split_offline(rule, offline, pairs, unit.norms)
        family = rule.elementwise()
        ring = Ring(transport, pairs, family is not None and family.per_pair)
        work = Work(
            rule, ring.among(pairs), outside, unit.used, unit.exact, unit.scale,
            None if bias is None else bias.detach(),
        )  # fmt: skip
        result = choose(work, ring)
        on_scale = unit.go_back(result.vectors)
        offline_weights = join_offline(*result.outside, pairs)
        split = result.vectors.tensor_split([len(images)])
        found = [*split, *(offline_weights or ()), on_scale, result.bias]
        gradients = [None if g is None else g * factor for g in found]
    inputs: list[Tensor | None] = [images, texts, *(offline or ()), scale, bias]
    return attach(result.value, inputs, gradients)


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
    if fused.suits(work, family):
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
