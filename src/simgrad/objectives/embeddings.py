"""From embeddings to gradients, without ever holding the whole similarity matrix.

Vectors are normalised, a way of working suits the rule and the size of the batch (both directions
from one matrix product, or one direction at a time; in one piece, or in blocks), and the gradient
goes back through the normalisation. It is complete when the forward pass ends; `.backward()` only
scales it.

The scale of the similarities costs nothing: it goes into the images before the products, and its
derivative is the product of the images and their gradient. On a GPU, half-precision inputs are
multiplied in bfloat16, summed in float32.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import threshold

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
        lengths = _Lengths(images.detach().to(exact), texts.detach().to(exact), scale)
        x, y = lengths.x, lengths.y
        checking = may_check(x)
        pairs = Positives.read(positives, len(x), len(y), x.device, checking)
        outside = split_offline(objective, offline, pairs, x)
        size = block or _BLOCK.get(x.device.type, 3 * 2**18)
        work = Work(objective, bias, pairs, outside, size, exact)
        result = _weigh(work, x.to(kind), y.to(kind), block)
        on_scale = lengths.go_back(result)
        offline_weights = join_offline(*result.outside, pairs)
        # At the end: reading a number back waits for a GPU, which has its work by now.
        if checking and not math.isfinite(float(lengths.norms.sum())):
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


class _Lengths:
    """Vectors of length 1, the images times a scale; and the way back to those that were given.

    A vector of length 0 has no direction to turn: it stays 0, and gets no gradient.
    """

    def __init__(self, images: Tensor, texts: Tensor, scale: Tensor | None) -> None:
        self.scale: Tensor | float = 1.0
        if scale is not None:
            # A number where it can be one without waiting for a GPU.
            known = scale.device.type == "cpu" and not scale.requires_grad
            self.scale = float(scale) if known else scale.detach().to(images.dtype)
        self.learned = scale is not None and scale.requires_grad
        n, m = len(images), len(texts)
        self.norms = images.new_empty(n + m, 1)
        torch.linalg.vector_norm(images, dim=1, keepdim=True, out=self.norms[:n])
        torch.linalg.vector_norm(texts, dim=1, keepdim=True, out=self.norms[n:])
        divisors = threshold(self.norms, _TINY, torch.inf)
        self.divisors = [divisors[:n], divisors[n:]]
        if scale is not None:
            self.divisors[0].div_(self.scale)
        self.x, self.y = images / self.divisors[0], texts / self.divisors[1]

    def go_back(self, result: Gradients) -> Tensor | None:
        """In place: gradients by unit vectors become gradients by what was given; by the scale."""
        along = _across(result.images, self.x, self.scale)
        _across(result.texts, self.y, 1.0)
        for gradient, divisor in zip((result.images, result.texts), self.divisors, strict=True):
            plain = isinstance(result.factor, float) and result.factor == 1.0
            gradient.div_(divisor if plain else divisor.div_(result.factor))
        return along.sum() * result.factor / self.scale if self.learned else None


def _across(gradient: Tensor, vectors: Tensor, length: "float | Tensor") -> Tensor:
    """In place: the part across vectors of this length; returns its product with them."""
    along = torch.einsum("nd,nd->n", gradient, vectors)[:, None]
    if isinstance(length, float):
        gradient.addcmul_(vectors, along, value=-(length**-2))
    else:
        gradient.addcmul_(vectors, along / length**2, value=-1)
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
