"""A rule on a whole matrix, one direction at a time, and what the frame adds to it."""

from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.tensors import rows_at
from simgrad.objectives.engine.work import Factor, factors_of, require_graded, silent_of
from simgrad.objectives.pairs import Pairs
from simgrad.objectives.positives import Positives, Side

Affine = tuple[Tensor | None, Tensor | None]  # scale and bias


class Direction(NamedTuple):
    """One direction's share of the loss and its derivatives."""

    value: Tensor
    values: Tensor  # (queries,) of each, without the factor of the direction
    weights: Tensor  # (queries, candidates)
    outside: Tensor | None  # (pairs, 2)


def weigh_direction(
    objective: Rule,
    S: Tensor,
    side: Side,
    outside: Tensor | None = None,
    affine: Affine | None = None,
    *,
    factor: Factor = 1.0,
) -> Direction:
    """One direction of a whole matrix: rows of S are queries. S is left as it is.

    `affine`: the objective's scale and bias, where they are known already. `factor`: what values
    and weights are multiplied with.
    """
    affine = affine or objective.affine()
    seen = affine_of(objective, S, affine).clone(memory_format=torch.contiguous_format)
    own = rows_at(seen.view(-1), side.place)
    values, weights, outer = apply_rule(objective, seen, side, own, own, outside)
    scale = affine[0]
    if isinstance(factor, Tensor):
        factor = factor.to(S.dtype)
    weights = weights * (factor if scale is None else factor * scale.detach().to(S.dtype))
    outer = None if outer is None else outer * factor
    return Direction(values.sum() * factor, values, weights, outer)


def weigh_both(
    objective: Rule,
    S: Tensor,  # (images, captions)
    pairs: Positives,
    outside: tuple[Tensor | None, Tensor | None],
    affine: Affine,
) -> tuple[Direction, Direction]:
    """Image queries, and caption queries: their weights are (captions, images)."""
    first, second = factors_of(objective, (pairs.i2t.share, pairs.t2i.share))
    i2t = weigh_direction(objective, S, pairs.i2t, outside[0], affine, factor=first)
    t2i = weigh_direction(objective, S.t(), pairs.t2i, outside[1], affine, factor=second)
    return i2t, t2i


def apply_rule(
    objective: Rule,
    seen: Tensor,  # (queries, candidates) similarities after scale and bias; they are used up
    side: Side,
    own: Tensor,  # (pairs,) similarities of the queries' positives
    of_batch: Tensor,  # (all pairs of the batch,)
    outside: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The rule, and what the frame adds to it: what is not there, who is silent, and what counts
    more than others. Values are those of each query."""
    require_graded(objective, side)
    if not len(of_batch):  # a batch without a positive: no rule is asked
        nothing = None if outside is None else torch.zeros_like(outside)
        return seen.new_zeros(side.queries), torch.zeros_like(seen), nothing
    if side.candidate_present is not None or side.ignored is not None:
        _require_coping(objective)
    if side.candidate_present is not None:
        # A candidate that is not there is infinitely dissimilar: no rule gives it weight.
        seen.masked_fill_(~side.candidate_present, -torch.inf)
    if side.ignored is not None:
        minus = seen.new_full((), -torch.inf)
        seen.index_put_((side.ignored[:, 0], side.ignored[:, 1]), minus)
    pairs = Pairs(
        side.query, side.candidate, own, side.queries, side.one_each, of_batch, outside, side.grade
    )
    values, weights, outer = (*objective.rule(seen, side.mask(), pairs), None)[:3]
    assert values is not None
    assert weights is not None
    if side.ignored is not None:
        nothing = weights.new_zeros(())
        weights = weights.index_put((side.ignored[:, 0], side.ignored[:, 1]), nothing)
    silent = silent_of(objective, side)
    if silent is not None:
        values = values.masked_fill(silent, 0)
        weights = weights.masked_fill(silent[:, None], 0)
    if side.importance is not None:
        importance = side.importance.to(values.dtype)
        values, weights = values * importance, weights * importance[:, None]
    return values, weights, outer


def _require_coping(objective: Rule) -> None:
    if not objective.copes_with_gaps():
        raise InputError(
            f"{objective}: its rule cannot ignore a pair. One that is ignored has the similarity "
            "-inf: the rule must give it no weight, and add nothing for it to its values. Take "
            "positives from `pairs` (-inf times 0 is NaN); clamp, mask or exponentiate the rest."
        )


def affine_of(objective: Rule, S: Tensor, affine: Affine | None = None) -> Tensor:
    """Similarities as the rule sees them."""
    scale, bias = affine or objective.affine()
    if scale is not None:
        S = S * scale.detach().to(S.dtype)
    if bias is not None:
        S = S + bias.detach().to(S.dtype)
    return S
