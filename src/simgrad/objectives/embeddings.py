"""From embeddings to gradients, without ever holding the whole similarity matrix.

Vectors are normalised, a way of working suits the rule and the size of the batch (both directions
from one matrix product, or one direction at a time; in one piece, or in blocks), and the gradient
goes back through the normalisation. It is complete when the forward pass ends; `.backward()` only
scales it.

The scale of the similarities costs nothing: its root goes into the vectors before the products, and
its derivative is the product of the vectors and their gradient. On a GPU, half-precision inputs are
multiplied in bfloat16, summed in float32. Images and texts lie one after the other in memory: what
is done to both is one operation, and small batches on a GPU wait for operations to be started.
"""

import math

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives import both, fused, replayed, rows
from simgrad.objectives.base import Objective
from simgrad.objectives.outside import Offline, join_offline, split_offline
from simgrad.objectives.positives import Positives
from simgrad.objectives.rows import Gradients, Outside, Work, times
from simgrad.objectives.tensors import (
    Readback,
    attach,
    check_finite,
    dots,
    exact_type,
    may_check,
    product_type,
    without_autocast,
)
from simgrad.objectives.turning import lengthen, turn

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
    if positives is None and offline is None and block is None:
        value = _replayed(objective, images, texts, scale, bias)
        if value is not None:
            return value
    given = torch.cat((images, texts))
    kind = product_type(given)  # autocast has a say in it, inside which nothing else is done
    with torch.no_grad(), without_autocast(images.device.type):
        lengths, checking = _Lengths(given.detach(), scale, kind), may_check(given)
        total = Readback(lengths.norms.sum()) if checking else None
        pairs = Positives.read(positives, images.shape[0], texts.shape[0], given.device, checking)
        outside = split_offline(objective, offline, pairs, given)
        work, result, on_scale = _work(objective, lengths, bias, pairs, outside, block)
        offline_weights = join_offline(*result.outside, pairs)
        if total is not None:
            _check_total(total.read(), images, texts)
    inputs: list[Tensor | None] = [given, *(offline or ()), scale, bias]
    gradients = [result.vectors, *(offline_weights or ()), on_scale, result.bias]
    return times(attach(result.value, inputs, gradients), work.share)


def _replayed(
    objective: Objective, images: Tensor, texts: Tensor, scale: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """The same of a batch that was recorded; None where none is."""
    if not replayed.suits(objective, images, texts, scale, bias):
        return None
    kind = product_type(images)

    def calculate(given: Tensor, scale: Tensor | None, bias: Tensor | None) -> replayed.Answer:
        pairs, lengths = Positives.diagonal(len(images), given.device), _Lengths(given, scale, kind)
        work, result, on_scale = _work(objective, lengths, bias, pairs, (None, None), None)
        assert isinstance(work.share, float)
        return replayed.Answer(work.share, result.value, result.vectors, on_scale, result.bias)

    with torch.no_grad(), without_autocast(images.device.type):
        given = images.detach(), texts.detach(), scale, bias
        found = replayed.replay(objective, given, kind, calculate)
    if found is None:
        return None
    answer, total = found
    _check_total(total, images, texts)
    by_images, by_texts = answer.vectors.tensor_split(2)
    gradients = [by_images, by_texts, answer.scale, answer.bias]
    return attach(answer.value, [images, texts, scale, bias], gradients)


def _work(
    objective: Objective,
    lengths: "_Lengths",
    bias: Tensor | None,
    pairs: Positives,
    outside: Outside,
    block: int | None,
) -> tuple[Work, Gradients, Tensor | None]:
    """From vectors of one length to gradients by what was given, and by the scale."""
    size = block or _BLOCK.get(lengths.unit.device.type, 3 * 2**18)
    work = Work(objective, bias, pairs, outside, size, lengths.unit, lengths.used, lengths.scale)
    result = _weigh(work, block)
    return work, result, lengths.go_back(result.vectors)


def _check_total(total: float, images: Tensor, texts: Tensor) -> None:
    """A sum over all vectors: if it is finite, so are they."""
    if not math.isfinite(total):
        check_finite(images.detach(), "images", True)
        check_finite(texts.detach(), "texts", True)


def _weigh(work: Work, block: int | None) -> Gradients:
    """The way of working that suits the rule and the size of the batch."""
    pairs, stream = work.pairs, work.objective.stream()
    largest = pairs.count * max(pairs.i2t.queries, pairs.t2i.queries)
    room = block or _DIRECT.get(work.unit.device.type, 2**22)
    in_one = largest <= room
    one_each = pairs.i2t.one_each and pairs.t2i.one_each
    if stream is None or (stream.per_pair and not one_each):
        whole = in_one or not work.objective.separable
        return rows.in_one_piece(work) if whole else rows.in_blocks(work)
    if block is None and fused.suits(work, stream):
        result = fused.weigh_fused(work, stream)
        if result is not None:
            return result
    if not in_one:
        return both.weigh_in_blocks(work, stream)
    # Both directions in one matrix are twice as many similarities.
    if pairs.order is None and work.silent is None and 2 * largest <= room:
        return both.weigh_in_one(work, stream)
    return rows.in_one_piece(work)


class _Lengths:
    """Vectors that are multiplied, all of one length; and the way back to those that were given.

    The length is the root of the scale, 1 without. A vector of length 0 has no direction to turn:
    it stays 0, and gets no gradient.
    """

    def __init__(self, given: Tensor, scale: Tensor | None, kind: torch.dtype) -> None:
        self.scale: Tensor | float = 1.0
        exact = exact_type(given)
        if scale is not None:
            # A number where it can be one without waiting for a GPU.
            known = scale.device.type == "cpu" and not scale.requires_grad
            self.scale = float(scale) if known else scale.detach().to(exact)
            if known and not self.scale > 0:
                raise InputError(f"the scale of similarities is {self.scale}; it must be above 0.")
        self.learned = scale is not None and scale.requires_grad
        lengthened = lengthen(given, self.scale, kind, _TINY)
        if lengthened is not None:
            self.unit, self.used, self.norms, self.divisors = lengthened
            return
        self.norms = torch.linalg.vector_norm(given, dim=1, keepdim=True, dtype=exact)
        self.divisors = torch.threshold(self.norms, _TINY, torch.inf)
        if scale is not None:
            self.divisors.div_(self.scale**0.5)
        # `given` is a copy, and no longer needed: its memory is.
        if given.dtype == exact:
            self.unit = given.div_(self.divisors)
            self.used = self.unit.to(kind)
        else:
            self.unit = given / self.divisors
            self.used = given.copy_(self.unit) if given.dtype == kind else self.unit.to(kind)

    def go_back(self, gradients: Tensor) -> Tensor | None:
        """In place: gradients by unit vectors become gradients by what was given; by the scale."""
        along = turn(gradients, self.unit, self.divisors, self.scale)
        if along is not None:
            return along.sum().div_(2 * self.scale) if self.learned else None
        along = dots(gradients, self.unit)
        if isinstance(self.scale, Tensor):
            gradients.addcmul_(self.unit, along.div_(self.scale), value=-1)
        else:
            gradients.addcmul_(self.unit, along, value=-1 / self.scale)
        gradients.div_(self.divisors)
        return along.sum().div_(2) if self.learned else None  # images and texts: twice the same


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
