"""An objective in a situation of its own: one query, a few candidates, nothing else in the batch.

Diagrams and the check of closedness ask what an objective does to a triplet at many points.
Every point is a batch with one query, and all of them go through the rule at once, one row each.
A rule may look beyond its row, at the positive pairs of the whole batch; in a situation there are
no others, so they are placed out of reach. Whether the rows really are independent is checked on
a few of them, and where they are not the rule is asked point by point.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.base import Objective
from simgrad.objectives.engine.rules import affine_of, weigh_direction
from simgrad.objectives.pairs import Pairs
from simgrad.objectives.positives import Side

# Above any similarity: such a positive pair is in nobody's relative set, and is no minimum.
_OUT_OF_REACH = 1e4
_PROBES = 8


class Situations(NamedTuple):
    """What an objective does to each situation, without the scale of a batch's mean."""

    values: Tensor  # (situations,)
    weights: Tensor  # (situations, candidates)


@torch.no_grad()
def weigh_situations(
    objective: Objective, similarities: Tensor, positives: int = 1, outside: float = 0.0
) -> Situations:
    """Weights of (situations, candidates); the first `positives` candidates are positive.

    `outside`: the similarity of mined pairs, for objectives that weigh those too.
    """
    S = similarities.detach()
    mined = S.new_full((len(S) * positives, 2), outside) if objective.needs_offline else None
    together = _together(objective, S, positives, mined)
    if together is not None:
        return together
    every = [_alone(objective, row[None], positives, mined) for row in S]
    return Situations(
        torch.cat([one.values for one in every]), torch.cat([one.weights for one in every])
    )


@torch.no_grad()
def independent(objective: Objective, candidates: int = 2, positives: int = 1) -> bool:
    """Whether many situations can be asked at once; point by point is a thousand times slower."""
    random = torch.Generator().manual_seed(0)
    S = torch.rand(64, candidates, generator=random, dtype=torch.float64)
    mined = S.new_zeros((len(S) * positives, 2)) if objective.needs_offline else None
    return _together(objective, S, positives, mined) is not None


def _together(
    objective: Objective, S: Tensor, positives: int, mined: Tensor | None
) -> Situations | None:
    """All rows at once; None if a few of them differ from what they are alone."""
    try:
        result = _all_rows(objective, S, positives, mined)
    except (IndexError, RuntimeError):  # a rule that counts on the batch's pairs being its rows'
        return None
    probes = torch.linspace(0, len(S) - 1, min(_PROBES, len(S)), device=S.device).long()
    for i in probes.tolist():
        alone = _alone(objective, S[i : i + 1], positives, mined)
        if not (
            torch.allclose(result.weights[i], alone.weights[0], rtol=1e-5, atol=1e-8)
            and torch.allclose(result.values[i], alone.values[0], rtol=1e-5, atol=1e-8)
        ):
            return None
    return result


def _all_rows(objective: Objective, S: Tensor, positives: int, mined: Tensor | None) -> Situations:
    rows = len(S)
    seen = affine_of(objective, S).clone()
    query = torch.arange(rows, device=S.device).repeat_interleave(positives)
    candidate = torch.arange(positives, device=S.device).repeat(rows)
    mask = torch.zeros(S.shape, dtype=torch.bool, device=S.device)
    mask[:, :positives] = True
    elsewhere = seen.new_full((1,), _OUT_OF_REACH)
    own = seen[query, candidate]
    pairs = Pairs(query, candidate, own, rows, positives == 1, elsewhere, mined)
    values, weights = objective.rule(seen, mask, pairs)[:2]
    scale, _ = objective.affine()
    return Situations(values, weights if scale is None else weights * scale.detach().to(S.dtype))


def _alone(objective: Objective, S: Tensor, positives: int, mined: Tensor | None) -> Situations:
    """One situation as a batch of one query, the plain way."""
    candidate = torch.arange(positives, device=S.device)
    side = Side(1, S.shape[1], torch.zeros_like(candidate), candidate, positives == 1)
    result = weigh_direction(objective, S, side, None if mined is None else mined[:positives])
    return Situations(result.values, result.weights)
