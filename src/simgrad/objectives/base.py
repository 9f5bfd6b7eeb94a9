"""The frame: everything an objective needs except its rule.

An objective is a rule from similarities to weights. It sees one direction at a time, rows are
queries: `rule(similarities, positives, batch) -> (values, weights)`, where `weights` is the
derivative of the summed values with respect to the similarities, or whatever the rule puts in its
place. Both directions, several positives, blocks, half precision, learned temperature, gradients
from above, queries without a negative and input checks come from here.
"""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import Registry, print_spec
from simgrad.objectives.batch import Batch, Sparse, Whole
from simgrad.objectives.outside import Offline, join_offline, split_offline
from simgrad.objectives.positives import Positives, Side
from simgrad.objectives.tensors import (
    at_least_float32,
    attach,
    check_finite,
    check_overflow,
    may_check,
    without_autocast,
)

if TYPE_CHECKING:
    from simgrad.objectives.streamed import Streamed


class Weights(NamedTuple):
    """What an objective does to a batch."""

    i2t: Tensor  # (images, captions) dL/dS, image queries
    t2i: Tensor  # (images, captions) dL/dS, caption queries
    value: Tensor  # the loss, for logging
    offline: Offline | None = None  # dL/d(the four offline similarities)


RuleResult = tuple[Tensor, "Tensor | Sparse"] | tuple[Tensor, "Tensor | Sparse", Tensor]


class Objective(nn.Module):
    """Base of all objectives: a dataclass of parameters with one method, `rule`."""

    name: ClassVar[str] = ""
    mean: ClassVar[bool] = False  # half the sum of the directions' means, or the sum over queries
    drawn_for_each: ClassVar[int] = 0  # images, and captions, from outside the batch, for a pair
    reads_mask: ClassVar[bool] = True  # False: the pairs in `batch` are enough for the rule
    separable: ClassVar[bool] = True  # False: the rule must see all rows at once, never a block
    replays = True  # small batches on a GPU are recorded and replayed (`replayed.py`)

    def __new__(cls, *arguments: Any, **named: Any) -> "Objective":
        # nn.Module must be set up before the dataclass assigns its fields.
        self = super().__new__(cls)
        nn.Module.__init__(self)
        return self

    @property
    def needs_offline(self) -> bool:
        """Whether it weighs similarities from outside the batch."""
        return self.drawn_for_each > 0

    @property
    def sparse(self) -> bool:
        """Whether it weighs the positives and one negative per query and direction, no others."""
        return False

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        """One direction, rows are queries -> (values per query, weights, [weights outside]).

        `similarities` (rows, candidates) are the rule's own: it may overwrite them. `positives` is
        their mask; `batch` lists the same pairs.
        """
        raise TypeError(f"{type(self).__name__} has no rule: an objective must define one.")

    def stream(self) -> "Streamed | None":
        """The pieces of the rule, where it is written in pieces (`streamed.py`)."""
        return None

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        """Scale and bias that the frame applies to the similarities first; they may be learned.

        The scale must be above 0.
        """
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
        result = self.weigh(similarities, positives, offline)
        with torch.no_grad():
            W = result.i2t + result.t2i
            factor = torch.ones_like(result.value) if scale is None else scale.detach()
            # The weights carry the scale; its own derivative and the bias's do not.
            on_scale = on_bias = None
            if scale is not None and scale.requires_grad:
                on_scale = (W * similarities).sum() / factor
            if bias is not None:
                on_bias = W.sum() / factor
        inputs: list[Tensor | None] = [similarities, *(offline or ()), scale, bias]
        gradients = [W, *(result.offline or ()), on_scale, on_bias]
        return attach(result.value, inputs, gradients)

    @torch.no_grad()
    def weigh(
        self,
        similarities: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
    ) -> Weights:
        """dL/dS by direction, and the loss."""
        if similarities.dim() != 2:
            shape = tuple(similarities.shape)
            raise InputError(f"similarities have shape {shape}; they must be images x captions.")
        with without_autocast(similarities.device.type):
            S = at_least_float32(similarities.detach())
            checking = may_check(S)
            check_finite(S, "similarities", checking)
            pairs = Positives.read(positives, S.shape[0], S.shape[1], S.device, checking)
            outside = split_offline(self, offline, pairs, S)
            i2t = weigh_rows(self, S, pairs.i2t, outside[0])
            t2i = weigh_rows(self, S.t(), pairs.t2i, outside[1])
            check_overflow(self, (i2t.weights, t2i.weights), similarities, checking)
            return Weights(
                i2t.weights,
                t2i.weights.t(),
                i2t.value + t2i.value,
                join_offline(i2t.outside, t2i.outside, pairs),
            )


class Direction(NamedTuple):
    """One direction's share of the loss and its derivatives."""

    value: Tensor
    weights: Tensor  # (queries, candidates)
    outside: Tensor | None  # (pairs, 2)


class Part(NamedTuple):
    """What the rule says of some rows, before the scale of the objective's mean."""

    value: Tensor
    weights: "Tensor | Sparse"
    outside: Tensor | None


def weigh_rows(
    objective: Objective, S: Tensor, side: Side, outside: Tensor | None = None
) -> Direction:
    """One direction in one piece: rows of S are queries. S is left as it is."""
    seen = affine_of(objective, S).clone(memory_format=torch.contiguous_format)
    part = weigh_whole(objective, seen, side, outside)
    factor = factor_of(objective, side, S.dtype)
    weights = part.weights if isinstance(part.weights, Tensor) else dense(part.weights, S)
    scale, _ = objective.affine()
    weights = weights * (factor if scale is None else factor * scale.detach().to(S.dtype))
    outer = None if part.outside is None else part.outside * factor
    return Direction(part.value * factor, weights, outer)


def factor_of(objective: Objective, side: Side, kind: torch.dtype) -> "float | Tensor":
    """What a query's value and weights are multiplied with."""
    factor = side.share if objective.mean else 1.0
    return factor.to(kind) if isinstance(factor, Tensor) else factor


def affine_of(objective: Objective, S: Tensor) -> Tensor:
    """Similarities as the rule sees them."""
    scale, bias = objective.affine()
    if scale is not None:
        S = S * scale.detach().to(S.dtype)
    if bias is not None:
        S = S + bias.detach().to(S.dtype)
    return S


def weigh_whole(objective: Objective, seen: Tensor, side: Side, outside: Tensor | None) -> Part:
    """`weigh_block` of all rows: the positives' similarities are read from the matrix."""
    if side.diagonal:
        whole = Whole(seen.diagonal().clone())
    else:
        whole = Whole(seen[side.query_of_pair, side.candidate_of_pair])
    return weigh_block(objective, seen, side, whole, (0, len(seen), slice(None)), outside)


def weigh_block(
    objective: Objective,
    seen: Tensor,
    side: Side,
    whole: Whole,
    block: tuple[int, int, slice],
    outside: Tensor | None,
) -> Part:
    """Apply the rule to rows start:stop of one direction.

    `seen` are their similarities after scale and bias; they are used up.
    """
    start, stop, pairs = block
    if side.candidate_present is not None:
        # A candidate that is not there is infinitely dissimilar: no rule gives it weight.
        seen.masked_fill_(~side.candidate_present, -torch.inf)
    query, candidate = side.query_of_pair[pairs], side.candidate_of_pair[pairs]
    own, outer = whole.positive_similarities[pairs], None if outside is None else outside[pairs]
    diagonal = side.diagonal and len(seen) == side.queries
    query = query - start if start else query
    batch = Batch(query, candidate, side.one_each, own, whole, outer, diagonal)
    mask = side.mask(start, stop, pairs) if objective.reads_mask else _NOT_READ
    values, weights, outer = (*objective.rule(seen, mask, batch), None)[:3]
    assert values is not None
    assert weights is not None
    # A query without a negative contributes nothing, unless it has negatives outside the batch.
    silent = side.absent if objective.needs_offline else side.silent
    if silent is not None:
        silent = silent[start:stop]
        values = values.masked_fill(silent, 0)
        if isinstance(weights, Sparse):
            weights = weights._replace(weight=weights.weight.masked_fill(silent[weights.query], 0))
        else:
            weights = weights.masked_fill_(silent[:, None], 0)
    return Part(values.sum(), weights, outer)


_NOT_READ = torch.empty(0, 0, dtype=torch.bool)


def dense(weights: Sparse, like: Tensor) -> Tensor:
    """Sparse weights as a matrix of the shape of `like`."""
    matrix = torch.zeros_like(like)
    return matrix.index_put_((weights.query, weights.candidate), weights.weight, accumulate=True)


objectives: Registry[Objective] = Registry("objective", "simgrad objectives")
