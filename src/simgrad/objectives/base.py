"""The frame: everything an objective needs except its rule.

An objective is a rule from similarities to weights. It sees one direction at a time, rows are
queries: `rule(similarities, positives, batch) -> (values, weights)`, where `weights` is the
derivative of the summed values with respect to the similarities, or whatever the rule puts in its
place. Both directions, several positives, blocks, half precision, learned temperature, gradients
from above and input checks come from here.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from simgrad.errors import InputError
from simgrad.objectives.positives import Positives, Side
from simgrad.objectives.spec import Registry, print_spec
from simgrad.objectives.tensors import add, at_least_float32, attach, check_finite, may_check


class Sparse(NamedTuple):
    """Weights of which few are not zero: an objective that looks at the hardest negative alone."""

    query: Tensor  # (entries,) row in the block
    candidate: Tensor  # (entries,)
    weight: Tensor  # (entries,)


class Offline(NamedTuple):
    """Four similarities per pair from outside the batch (AOQ); pair k is caption k of the batch.

    With I, T the pair, T̂ and Î its mined caption and image, Ĩ the image of T̂, T̃ a caption of Î.
    """

    caption: Tensor  # S(I, T̂)
    image: Tensor  # S(Î, T)
    pair: Tensor  # S(Î, T̂)
    partner: Tensor  # S(Ĩ, T̃)


class Weights(NamedTuple):
    """What an objective does to a batch."""

    i2t: Tensor  # (images, captions) dL/dS, image queries
    t2i: Tensor  # (images, captions) dL/dS, caption queries
    value: Tensor  # the loss, for logging
    offline: Offline | None = None  # dL/d(the four offline similarities)


class Whole:
    """What a rule may need to know of the whole batch while it sees some of its rows."""

    def __init__(self, positive_similarities: Tensor) -> None:
        self.positive_similarities = positive_similarities  # (all pairs,), sorted by query

    @cached_property
    def sorted_positives(self) -> Tensor:
        return self.positive_similarities.sort().values

    @cached_property
    def smallest_positive(self) -> Tensor:
        return self.positive_similarities.min()


@dataclass(frozen=True)
class Batch:
    """The positive pairs of the rows a rule sees, and what lies outside of them."""

    query: Tensor  # (pairs,) row in the block
    candidate: Tensor  # (pairs,)
    one_each: bool  # pair k belongs to row k
    similarity: Tensor  # (pairs,) of each positive pair
    whole: Whole
    outside: Tensor | None = None  # (pairs, 2) offline similarities of this direction

    def per_pair(self, rows: Tensor) -> Tensor:
        """(rows, ...) -> (pairs, ...): each pair sees its query's row."""
        return rows if self.one_each else rows[self.query]

    def per_query(self, pairs: Tensor, rows: int) -> Tensor:
        """(pairs, ...) -> (rows, ...): sum over the pairs of a query."""
        if self.one_each:
            return pairs
        return pairs.new_zeros((rows, *pairs.shape[1:])).index_add_(0, self.query, pairs)


RuleResult = tuple[Tensor, "Tensor | Sparse"] | tuple[Tensor, "Tensor | Sparse", Tensor]


class Objective(nn.Module):
    """Base of all objectives: a subclass is a dataclass of its parameters with one method, `rule`."""

    name: ClassVar[str] = ""
    mean: ClassVar[bool] = False  # half the sum of the directions' means, or the sum over queries
    needs_offline: ClassVar[bool] = False

    def __new__(cls, *arguments: Any, **named: Any) -> "Objective":
        # nn.Module must be set up before the dataclass assigns its fields.
        self = super().__new__(cls)
        nn.Module.__init__(self)
        return self

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        """One direction, rows are queries -> (values per query, weights, [weights outside])."""
        raise TypeError(f"{type(self).__name__} has no rule: an objective must define one.")

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        """A learned scale and bias of the similarities, where an objective has them."""
        return None, None

    def __str__(self) -> str:
        return print_spec(self)

    __repr__ = __str__

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        block: int | None = None,
    ) -> Tensor:
        """The loss of embeddings (n, d) and (m, d), normalised inside; `.backward()` applies W.

        Large batches are worked in blocks of about `block` similarities (chosen if not given), so
        that memory grows with the batch, not with its square.
        """
        from simgrad.objectives.embeddings import weigh_embeddings

        return weigh_embeddings(self, images, texts, positives, offline, block)

    def on(
        self,
        similarities: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
    ) -> Tensor:
        """The loss of any similarity matrix (images x captions) with a gradient history."""
        scale, bias = self.affine()
        with torch.no_grad():
            result, learned = _weigh(self, similarities, positives, offline)
        inputs: list[Tensor | None] = [similarities, *(offline or ()), scale, bias]
        gradients = [result.i2t + result.t2i, *(result.offline or ()), *learned]
        return attach(result.value, inputs, gradients)

    @torch.no_grad()
    def weigh(
        self,
        similarities: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
    ) -> Weights:
        """dL/dS by direction, and the loss."""
        return _weigh(self, similarities, positives, offline)[0]


def _weigh(
    objective: Objective,
    similarities: Tensor,
    positives: "Tensor | Positives | None",
    offline: Offline | None,
) -> tuple[Weights, tuple[Tensor | None, Tensor | None]]:
    if similarities.dim() != 2:
        raise InputError(
            f"similarities have shape {tuple(similarities.shape)}; they must be images x captions."
        )
    with torch.autocast(similarities.device.type, enabled=False):
        S = at_least_float32(similarities.detach())
        checking = may_check(S)
        check_finite(S, "similarities", checking)
        pairs = Positives.read(positives, S.shape[0], S.shape[1], S.device, checking)
        outside = split_offline(objective, offline, pairs, S)
        i2t = weigh_rows(objective, S, pairs.i2t, outside[0])
        t2i = weigh_rows(objective, S.t().contiguous(), pairs.t2i, outside[1])
        value = i2t.value + t2i.value
        weights = Weights(
            i2t.weights, t2i.weights.t(), value, join_offline(i2t.outside, t2i.outside, pairs)
        )
    return weights, (add(i2t.scale, t2i.scale), add(i2t.bias, t2i.bias))


class Direction(NamedTuple):
    """One direction's share of the loss and its derivatives."""

    value: Tensor
    weights: Tensor  # (queries, candidates)
    outside: Tensor | None  # (pairs, 2)
    scale: Tensor | None  # dL/d(learned scale)
    bias: Tensor | None


def weigh_rows(
    objective: Objective, S: Tensor, side: Side, outside: Tensor | None = None
) -> Direction:
    """One direction in one piece: rows of S are queries."""
    positive = S[side.query_of_pair, side.candidate_of_pair]
    whole = Whole(affine_of(objective, positive))
    result: Direction = weigh_block(objective, S, side, whole, (0, len(S), slice(None)), outside)
    return result


def affine_of(objective: Objective, S: Tensor) -> Tensor:
    """Similarities as the rule sees them."""
    scale, bias = objective.affine()
    if scale is not None:
        S = S * scale.detach().to(S.dtype)
    if bias is not None:
        S = S + bias.detach().to(S.dtype)
    return S


def weigh_block(
    objective: Objective,
    S: Tensor,
    side: Side,
    whole: Whole,
    block: tuple[int, int, slice],
    outside: Tensor | None,
    densify: bool = True,
) -> Any:
    """Apply the rule to rows start:stop of one direction, and scale what it returns."""
    start, stop, pairs = block
    seen = affine_of(objective, S)
    if side.candidate_present is not None:
        # A candidate that is not there is infinitely dissimilar: no rule gives it weight.
        seen = seen.masked_fill(~side.candidate_present, -torch.inf)
    batch = Batch(
        side.query_of_pair[pairs] - start,
        side.candidate_of_pair[pairs],
        side.one_each,
        whole.positive_similarities[pairs],
        whole,
        None if outside is None else outside[pairs],
    )
    result = objective.rule(seen, side.mask(start, stop, pairs), batch)
    values, weights, outer = (*result, None)[:3]
    assert values is not None
    if densify and isinstance(weights, Sparse):
        weights = dense(weights, S)
    if side.query_present is not None:
        absent = ~side.query_present[start:stop]
        values = values.masked_fill(absent, 0)
        if isinstance(weights, Tensor):
            weights = weights.masked_fill(absent[:, None], 0)
    if objective.mean:
        present = side.query_present
        factor = 0.5 / side.queries if present is None else 0.5 / present.sum()
        values = values * factor
        weights = _times(weights, factor)
        outer = None if outer is None else outer * factor
    return _through_affine(objective, S, values.sum(), weights, outer)


def _through_affine(
    objective: Objective, S: Tensor, value: Tensor, weights: Any, outer: Tensor | None
) -> Any:
    """The chain rule through a learned scale and bias."""
    scale, bias = objective.affine()
    scale_gradient = bias_gradient = None
    if bias is not None:
        bias_gradient = weights.sum()
    if scale is not None:
        scale_gradient = (weights * S).sum()
        weights = weights * scale.detach().to(S.dtype)
    return Direction(value, weights, outer, scale_gradient, bias_gradient)


def _times(weights: Any, factor: Any) -> Any:
    if isinstance(weights, Sparse):
        return weights._replace(weight=weights.weight * factor)
    return weights * factor


def dense(weights: Sparse, like: Tensor) -> Tensor:
    """Sparse weights as a matrix of the shape of `like`."""
    matrix = torch.zeros_like(like)
    return matrix.index_put_((weights.query, weights.candidate), weights.weight, accumulate=True)


def split_offline(
    objective: Objective, offline: Offline | None, pairs: Positives, S: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Offline similarities by direction, in its order of pairs: (own anchor, no shared anchor)."""
    if objective.needs_offline != (offline is not None):
        raise InputError(
            f"{objective.name} weighs similarities from outside the batch: give "
            "`offline=simgrad.objectives.Offline(caption, image, pair, partner)`."
            if objective.needs_offline
            else f"{objective.name} takes no offline similarities; off-tri, off-quin and "
            "adap-off-quin do."
        )
    if offline is None:
        return None, None
    count = len(pairs.t2i.query_of_pair)
    for field, similarities in offline._asdict().items():
        if similarities.shape != (count,):
            raise InputError(
                f"offline.{field} has shape {tuple(similarities.shape)}; one similarity for each "
                f"of the {count} pairs is needed."
            )
        check_finite(similarities.detach()[None], f"offline.{field}", may_check(S))
    values = [at_least_float32(x.detach()) for x in offline]
    i2t, t2i = torch.stack([values[0], values[2]], 1), torch.stack([values[1], values[3]], 1)
    return (i2t if pairs.order is None else i2t[pairs.order]), t2i


def join_offline(i2t: Tensor | None, t2i: Tensor | None, pairs: Positives) -> Offline | None:
    """The inverse of `split_offline`, for the weights."""
    if i2t is None or t2i is None:
        return None
    if pairs.order is not None:
        i2t = torch.empty_like(i2t).index_copy_(0, pairs.order, i2t)
    return Offline(i2t[:, 0], t2i[:, 0], i2t[:, 1], t2i[:, 1])


objectives: Registry[Objective] = Registry("objective", "simgrad objectives")
