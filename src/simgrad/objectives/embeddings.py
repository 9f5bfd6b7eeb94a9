"""From embeddings to gradients, without ever holding the whole similarity matrix.

Vectors are normalised, a way of working suits the rule and the size of the batch (both directions
from one matrix product, or one direction at a time; in one piece, or in blocks), and the gradient
goes back through the normalisation. It is complete when the forward pass ends; `.backward()` only
scales it.

The scale of the similarities costs nothing: it goes into the images before the products, and its
derivative is the product of the images and their gradient. On a GPU, half-precision inputs are
multiplied in bfloat16, summed in float32.
"""

import torch
from torch import Tensor

from simgrad.errors import InputError
from simgrad.objectives import both, fused, rows
from simgrad.objectives.base import Objective
from simgrad.objectives.outside import Offline, join_offline, split_offline
from simgrad.objectives.positives import Positives
from simgrad.objectives.rows import Gradients, Work
from simgrad.objectives.tensors import attach, check_finite, exact_type, may_check, product_type

# How many similarities a block holds: 3 MiB on a CPU, where several temporaries must stay near the
# caches; 256 MiB on a GPU, where larger products are faster.
_BLOCK = {"cpu": 3 * 2**18, "cuda": 2**26}
# Up to how many a batch is worked in one piece, which makes them once: 16 MiB and 1 GiB.
_DIRECT = {"cpu": 2**22, "cuda": 2**28}
_TINY = 1e-12


def weigh_embeddings(
    objective: Objective,
    images: Tensor,
    texts: Tensor,
    positives: "Tensor | Positives | None",
    offline: Offline | None,
    block: int | None,
) -> Tensor:
    """The loss of a batch of embeddings, its gradient attached."""
    _check_shapes(images, texts)
    scale, bias = objective.affine()
    kind = product_type(images, texts)
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        exact = exact_type(images, texts)
        factor = None if scale is None else scale.detach().to(exact)
        x, x_norm = _normalised(images.detach().to(exact), factor)
        y, y_norm = _normalised(texts.detach().to(exact))
        checking = may_check(x)
        pairs = Positives.read(positives, len(x), len(y), x.device, checking)
        outside = split_offline(objective, offline, pairs, x)
        size = block or _BLOCK.get(x.device.type, 3 * 2**18)
        work = Work(objective, bias, pairs, outside, size, exact)
        result = _weigh(work, x.to(kind), y.to(kind), block)
        along = _through_normalisation(result.images, x, x_norm, result.factor, factor)
        _through_normalisation(result.texts, y, y_norm, result.factor)
        on_scale = None
        if scale is not None and factor is not None and scale.requires_grad:
            on_scale = along.sum() * result.factor / factor
        offline_weights = join_offline(*result.outside, pairs)
        # At the end: reading a number back waits for a GPU, which has its work by now.
        if checking and not torch.isfinite(x_norm.sum() + y_norm.sum()):
            check_finite(images.detach(), "images", checking)
            check_finite(texts.detach(), "texts", checking)
    inputs: list[Tensor | None] = [images, texts, *(offline or ()), scale, bias]
    gradients = [result.images, result.texts, *(offline_weights or ()), on_scale, result.bias]
    return attach(result.value, inputs, gradients)


def _weigh(work: Work, x: Tensor, y: Tensor, block: int | None) -> Gradients:
    """The way of working that suits the rule and the size of the batch."""
    pairs, stream = work.pairs, work.objective.stream()
    largest = len(pairs.t2i.query_of_pair) * max(len(x), len(y))
    in_one = largest <= (block or _DIRECT.get(x.device.type, 2**22))
    one_each = pairs.i2t.one_each and pairs.t2i.one_each
    if stream is None or (stream.per_pair and not one_each):
        whole = in_one or not work.objective.separable
        return (rows.in_one_piece if whole else rows.in_blocks)(work, x, y)
    if block is None and fused.suits(work, stream, x, y):
        result = fused.weigh_fused(work, stream, x, y)
        if result is not None:
            return result
    return (both.weigh_in_one if in_one else both.weigh_in_blocks)(work, stream, x, y)


def _normalised(x: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Unit vectors times `scale`, and the norms."""
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    divisor = norm.clamp_min(_TINY)
    return x / (divisor if scale is None else divisor.div_(scale)), norm


def _through_normalisation(
    gradient: Tensor,
    scaled: Tensor,
    norm: Tensor,
    factor: "float | Tensor",
    scale: Tensor | None = None,
) -> Tensor:
    """In place: d/dx of `scaled` = scale * x/|x|, times `factor`; returns gradient . scaled.

    A zero vector has no direction to turn; it gets no gradient.
    """
    along = torch.einsum("nd,nd->n", gradient, scaled)[:, None]
    if scale is not None:
        gradient.addcmul_(scaled, along / scale**2, value=-1)
        factor = factor * scale
    else:
        gradient.addcmul_(scaled, along, value=-1)
    gradient.mul_(torch.where(norm > _TINY, factor / norm, 0.0))
    return along


def _check_shapes(images: Tensor, texts: Tensor) -> None:
    for what, x in (("images", images), ("texts", texts)):
        if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
            got = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"{what} must be a floating-point tensor (count, dimension), not {got}."
            )
        if x.numel() == 0:
            raise InputError(f"{what} is empty: shape {tuple(x.shape)}.")
    if images.shape[1] != texts.shape[1]:
        raise InputError(
            f"images have {images.shape[1]} dimensions, texts {texts.shape[1]}: they must share a "
            "space."
        )
