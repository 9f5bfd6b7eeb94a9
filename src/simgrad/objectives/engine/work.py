"""A batch in work: its vectors, what all ways of working need to know of it, and what they come to.

All vectors that are multiplied have one length, the root of the similarities' scale, 1 without one.
So the scale costs nothing; its derivative is the product of the vectors and their gradient. A
vector of length 0 has no direction to turn: it stays 0, and gets no gradient.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.tensors import chunks, exact_type, product
from simgrad.objectives.pairs import Offline
from simgrad.objectives.positives import Positives, Side

Factor = float | Tensor
TINY = 1e-12  # a shorter vector has no direction


class Unit:
    """Images and texts, one after the other in memory: what is done to both is one operation."""

    def __init__(
        self,
        images: Tensor,
        texts: Tensor,
        scale: Tensor | None,
        kind: torch.dtype,
        learned: bool = False,  # the scale wants a gradient
    ) -> None:
        self.images, self.texts = images.detach(), texts.detach()
        given = torch.cat((self.images, self.texts))
        self.exact, self.kind = exact_type(given), kind
        self.scale: Tensor | float = 1.0
        self.learned = learned
        if scale is not None:
            # A number where it can be one without waiting for a GPU.
            known = scale.device.type == "cpu" and not learned
            self.scale = float(scale) if known else scale.detach().to(self.exact)
            if known and not self.scale > 0:
                raise InputError(f"the scale of similarities is {self.scale}; it must be above 0.")
        self.norms = torch.linalg.vector_norm(given, dim=1, keepdim=True, dtype=self.exact)
        # What each is multiplied with: nothing for what has no length.
        self.factors = torch.threshold(self.norms, TINY, torch.inf).reciprocal_()
        if scale is not None:
            self.factors.mul_(self.scale**0.5)
        # `given` is a copy: its memory is used again.
        if given.dtype == self.exact:
            self.used = given.mul_(self.factors).to(kind)
        else:
            self.used = given if given.dtype == kind else torch.empty_like(given, dtype=kind)
            torch.mul(given, self.factors, out=self.used)

    def go_back(self, gradients: Tensor) -> Tensor | None:
        """In place: gradients by the vectors become gradients by what was given; by the scale.

        With u = f x that is f (g - u (g.u) / scale): what turns a vector, not what lengthens it.
        """
        along: list[Tensor] = []
        for part in chunks(len(gradients), gradients):
            some, factor = gradients[part], self.factors[part]
            vectors = self.used[part] if self.kind == self.exact else self._given(part)
            product = (some * vectors).sum(1, keepdim=True)
            if self.kind != self.exact:
                product.mul_(factor)
                vectors = vectors.to(self.exact).mul_(factor)
            if self.learned:
                along.append(product.sum())
            some.addcmul_(vectors, product.div_(self.scale), value=-1).mul_(factor)
        if not self.learned:
            return None
        return torch.stack(along).sum().div_(2 * self.scale)  # images and texts: twice the same

    def _given(self, part: slice) -> Tensor:
        """Some of the vectors as they were given."""
        images = len(self.images)
        if part.stop <= images:
            return self.images[part]
        if part.start >= images:
            return self.texts[part.start - images : part.stop - images]
        return torch.cat((self.images[part.start :], self.texts[: part.stop - images]))


Outside = tuple[Tensor | None, Tensor | None]  # by direction, (pairs, 2)


class Given(NamedTuple):
    """What belongs to a batch beside its vectors, as a user gives it."""

    positives: "Tensor | Positives | None" = None
    offline: Offline | None = None
    ignore: Tensor | None = None
    weights: Tensor | None = None
    block: int | None = None


class Gradients(NamedTuple):
    """The loss and its derivatives."""

    value: Tensor
    values: Tensor  # (image and caption queries here,) of each, without the direction's factor
    vectors: Tensor  # (images and texts, width) by what is multiplied
    outside: Outside
    bias: Tensor | None


@dataclass(frozen=True)
class Work:
    """A batch whose vectors all have one length, the root of the scale."""

    rule: Rule
    pairs: Positives
    outside: Outside
    vectors: Tensor  # (images and texts, width) in the precision of products
    exact: torch.dtype  # of everything else
    scale: Factor = 1.0
    bias: Tensor | None = None
    block: int | None = None  # similarities in a block, where a user says so
    # (queries,) of either direction: what their values are multiplied with by whoever asked for
    # each of them, and so the factors of their weights. None: the objective's own.
    above: tuple[Tensor, Tensor] | None = None

    @property
    def count(self) -> int:
        """Images; texts come after them."""
        return self.pairs.i2t.queries

    @cached_property
    def images(self) -> Tensor:
        return self.vectors[: self.count]

    @cached_property
    def texts(self) -> Tensor:
        return self.vectors[self.count :]

    def similarities(self, images: Tensor, texts: Tensor) -> Tensor:
        """(images, texts) as the rule sees them."""
        S = product(images, texts.t())
        return S if self.bias is None else S.add_(self.bias)

    def own(self, side: Side, queries: Tensor, candidates: Tensor) -> Tensor:
        """(pairs,) similarities of the positive pairs alone."""
        if side.one_each and self.pairs.order is None:
            some = [
                (queries[part].to(self.exact) * candidates[part]).sum(1)
                for part in chunks(len(queries), queries)
            ]
        else:
            some = [
                (queries[side.query[part]].to(self.exact) * candidates[side.candidate[part]]).sum(1)
                for part in chunks(len(side.query), queries)
            ]
        own = some[0] if len(some) == 1 else torch.cat(some)
        return own if self.bias is None else own.add_(self.bias)

    @cached_property
    def factors(self) -> tuple[Factor, Factor]:
        """What an image query's value and weights are multiplied with, and a caption query's."""
        if self.above is not None:
            return 1.0, 1.0
        i2t, t2i = (side.share for side in (self.pairs.i2t, self.pairs.t2i))
        shares = tuple(s.to(self.exact) if isinstance(s, Tensor) else s for s in (i2t, t2i))
        return factors_of(self.rule, (shares[0], shares[1]))

    @cached_property
    def heard(self) -> tuple[Tensor | None, Tensor | None]:
        """(queries,) of either direction: how much each counts; None: all the same."""
        sides = (self.pairs.i2t, self.pairs.t2i)
        own = [None if s.importance is None else s.importance.to(self.exact) for s in sides]
        if self.above is not None:
            both = zip(self.above, own, strict=True)
            own = [a.to(self.exact) if o is None else a.to(self.exact) * o for a, o in both]
        return own[0], own[1]

    @cached_property
    def silences(self) -> tuple[Tensor | None, Tensor | None]:
        """(queries,) of either direction: those that contribute nothing; None: all do."""
        return silent_of(self.rule, self.pairs.i2t), silent_of(self.rule, self.pairs.t2i)


def require_graded(objective: Rule, side: Side) -> None:
    if side.weight is not None and not objective.graded:
        raise InputError(
            f"{objective}: `weights` of pairs have no meaning for it that is agreed on. They have "
            "for objectives that add up or average over a query's positives: nt-xent, triplet, "
            "triplet-sh, goal and focused-deviance."
        )


def silent_of(objective: Rule, side: Side) -> Tensor | None:
    """(queries,) those that contribute nothing; None: all contribute.

    A query without a positive or a negative does not. One with negatives outside the batch needs
    none in it. Where each pair counts by itself, so do those of a query that has no positive: what
    is nobody's is then as much of a negative as any other, seen from either direction.
    """
    if objective.pairwise:
        return side.padding
    return side.absent if objective.needs_offline else side.silent


def factors_of(objective: Rule, shares: tuple[Factor, Factor]) -> tuple[Factor, Factor]:
    """What the values and weights of an image query are multiplied with, and of a caption query.

    `shares`: half a query's share of the mean of its direction.
    """
    i2t, t2i = shares if objective.mean else (1.0, 1.0)
    if objective.direction == "both":
        return i2t, t2i
    whole = 2.0 if objective.mean else 1.0  # one direction alone is a mean, not half of one
    return (i2t * whole, 0.0) if objective.direction == "i2t" else (0.0, t2i * whole)


def add_rows(
    to: Tensor, rows: Tensor | None, vectors: Tensor, which: Tensor | None, weight: Tensor
) -> None:
    """In place: to[rows] += weight * vectors[which], as much at a time as stays small.

    None stands for 0, 1, 2, ...
    """
    for part in chunks(len(weight), vectors):
        some = vectors[part] if which is None else vectors[which[part]]
        if rows is None:
            to[part].addcmul_(some, weight[part, None])
        else:
            to.index_add_(0, rows[part], some.to(to.dtype) * weight[part, None])
