"""Rules that must see whole rows: one direction at a time.

For each direction and each block of query rows, a matrix product makes the similarities, the rule
turns them into weights, and two products multiply these into the gradients. A batch that is small
enough is one block. With several processes, each sees its own queries and all candidates.
"""

from dataclasses import replace

import torch
from torch import Tensor

from simgrad.objectives.engine.passes import Passing
from simgrad.objectives.engine.rules import apply_rule
from simgrad.objectives.engine.tensors import add_product
from simgrad.objectives.engine.work import Factor, Gradients, Outside, Work
from simgrad.objectives.positives import Side

_BLOCK = {"cpu": 2**21, "cuda": 2**26}  # similarities in a block


def weigh_dense(work: Work, passing: Passing) -> Gradients:
    """Six matrix products: three for each direction."""
    factors = passing.factors(work)
    own = work.own(work.pairs.i2t, work.images, work.texts)
    of_batch = passing.gathered(own)
    images, texts = (_Vectors(v, work, passing) for v in (work.images, work.texts))
    i2t = _among(work.pairs.i2t, len(texts.every), passing.first_text)
    t2i = _among(work.pairs.t2i, len(images.every), passing.first_image)
    above = work.above or (None, None)
    by_image = _direction(
        work, images, texts, i2t, own, of_batch, work.outside[0], factors[0], above[0]
    )
    by_caption = work.pairs.by_caption(own)
    by_text = _direction(
        work, texts, images, t2i, by_caption, of_batch, work.outside[1], factors[1], above[1]
    )
    outside: Outside = (None, None)
    if by_image[1] is not None and by_text[1] is not None:
        outside = by_image[1] * factors[0], by_text[1] * factors[1]
    gradients = torch.cat(
        [images.total(passing.first_image, passing), texts.total(passing.first_text, passing)]
    )
    bias = None if work.bias is None else by_image[2] + by_text[2]
    value = by_image[0].sum() * factors[0] + by_text[0].sum() * factors[1]
    values = torch.cat([by_image[0], by_text[0]])
    return Gradients(passing.summed(value), values, gradients, outside, bias)


class _Vectors:
    """Images or texts: one's own, those of all processes, and gradients of either."""

    def __init__(self, own: Tensor, work: Work, passing: Passing) -> None:
        self.own, self.every = own, passing.gathered(own)
        self.on_own = torch.zeros_like(own, dtype=work.exact)
        self.on_every = torch.zeros_like(self.every, dtype=work.exact)

    def total(self, first: int, passing: Passing) -> Tensor:
        """What reaches one's own vectors, as queries here and as candidates everywhere."""
        everywhere = passing.summed(self.on_every)
        return self.on_own.add_(everywhere[first : first + len(self.own)])


def _among(side: Side, candidates: int, first: int) -> Side:
    """The same pairs among the candidates of all processes."""
    if candidates == side.candidates:
        return side
    ignored = side.ignored
    if ignored is not None:
        ignored = ignored + ignored.new_tensor([0, first])
    return replace(
        side,
        candidates=candidates,
        candidate=side.candidate + first,
        ignored=ignored,
        elsewhere=0,
    )


def _direction(
    work: Work,
    queries: _Vectors,
    candidates: _Vectors,
    side: Side,
    own: Tensor,  # (pairs,) by query
    of_batch: Tensor,
    outside: Tensor | None,
    factor: Factor,
    above: Tensor | None,  # (queries,)
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The values, the weights outside, and the sum of all weights."""
    values, total = [own.new_zeros(0)], own.new_zeros(())
    outer = []
    for start, stop in blocks(work, side):
        some, pairs = side.rows(start, stop), side.pairs_of(start, stop)
        S = work.similarities(queries.own[start:stop], candidates.every)
        mined = None if outside is None else outside[pairs]
        part, weights, beyond = apply_rule(work.rule, S, some, own[pairs], of_batch, mined)
        weights = weights * factor
        if above is not None:
            each = above[start:stop].to(weights)
            weights = weights * each[:, None]
            beyond = None if beyond is None else beyond * each[some.query, None]
        used = weights.to(work.vectors.dtype)
        add_product(queries.on_own[start:stop], used, candidates.every)
        add_product(candidates.on_every, used.t(), queries.own[start:stop])
        values.append(part)
        total = total + weights.sum()
        if beyond is not None:
            outer.append(beyond)
    return torch.cat(values), torch.cat(outer) if outer else None, total


def blocks(work: Work, side: Side) -> list[tuple[int, int]]:
    """Which queries are weighed at a time."""
    size = work.block or _BLOCK.get(work.vectors.device.type, 2**21)
    many = size // max(1, side.candidates) if work.rule.separable else side.queries
    many = max(1, many)
    return [(a, min(a + many, side.queries)) for a in range(0, side.queries, many)]
