"""A rule on a whole matrix, one direction at a time, and what the frame adds to it."""

from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.pairs import Pairs
from simgrad.objectives.positives import Side

Affine = tuple[Tensor | None, Tensor | None]  # scale and bias


class Direction(NamedTuple):
    """One direction's share of the loss and its derivatives."""

    value: Tensor
    weights: Tensor  # (queries, candidates)
    outside: Tensor | None  # (pairs, 2)


def weigh_direction(
    objective: Rule,
    S: Tensor,
    side: Side,
    outside: Tensor | None = None,
    affine: Affine | None = None,
) -> Direction:
    """One direction of a whole matrix: rows of S are queries. S is left as it is.

    `affine`: the objective's scale and bias, where they are known already.
    """
    affine = affine or objective.affine()
    seen = affine_of(objective, S, affine).clone(memory_format=torch.contiguous_format)
    own = seen[side.query, side.candidate]
    value, weights, outer = apply_rule(objective, seen, side, own, own, outside)
    scale, factor = affine[0], factor_of(objective, side, S.dtype)
    weights = weights * (factor if scale is None else factor * scale.detach().to(S.dtype))
    return Direction(value * factor, weights, None if outer is None else outer * factor)


def apply_rule(
    objective: Rule,
    seen: Tensor,  # (queries, candidates) similarities after scale and bias; they are used up
    side: Side,
    own: Tensor,  # (pairs,) similarities of the queries' positives
    of_batch: Tensor,  # (all pairs of the batch,)
    outside: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The rule, and what the frame adds to it: what is not there, and who is silent."""
    if not len(of_batch):  # a batch without a positive: no rule is asked
        nothing = None if outside is None else torch.zeros_like(outside)
        return seen.new_zeros(()), torch.zeros_like(seen), nothing
    if side.candidate_present is not None or side.ignored is not None:
        _require_coping(objective)
    if side.candidate_present is not None:
        # A candidate that is not there is infinitely dissimilar: no rule gives it weight.
        seen.masked_fill_(~side.candidate_present, -torch.inf)
    if side.ignored is not None:
        minus = seen.new_full((), -torch.inf)
        seen.index_put_((side.ignored[:, 0], side.ignored[:, 1]), minus)
    pairs = Pairs(side.query, side.candidate, own, side.queries, side.one_each, of_batch, outside)
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
    return values.sum(), weights, outer


def silent_of(objective: Rule, side: Side) -> Tensor | None:
    """(queries,) those that contribute nothing; None: all contribute.

    A query without a positive or a negative does not. One with negatives outside the batch needs
    none in it. Where each pair counts by itself, so do those of a query that has no positive: what
    is nobody's is then as much of a negative as any other, seen from either direction.
    """
    if objective.pairwise:
        return side.padding
    return side.absent if objective.needs_offline else side.silent


def _require_coping(objective: Rule) -> None:
    if not objective.copes_with_gaps():
        raise InputError(
            f"{objective}: its rule cannot ignore a pair. One that is ignored has the similarity "
            "-inf: the rule must give it no weight, and add nothing for it to its values. Take "
            "positives from `pairs` (-inf times 0 is NaN); clamp, mask or exponentiate the rest."
        )


def factor_of(objective: Rule, side: Side, kind: torch.dtype) -> "float | Tensor":
    """What a query's value and weights are multiplied with."""
    factor = side.share if objective.mean else 1.0
    return factor.to(kind) if isinstance(factor, Tensor) else factor


def affine_of(objective: Rule, S: Tensor, affine: Affine | None = None) -> Tensor:
    """Similarities as the rule sees them."""
    scale, bias = affine or objective.affine()
    if scale is not None:
        S = S * scale.detach().to(S.dtype)
    if bias is not None:
        S = S + bias.detach().to(S.dtype)
    return S
