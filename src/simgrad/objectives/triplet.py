"""Triplet losses: every negative, or the hardest alone.

Faghri, Fleet, Kiros, Fidler: VSE++, BMVC 2018; compared by Bleeker & de Rijke, ECIR 2022 (eq. 2-3),
who call the hardest negative of the batch "semi-hard". For query q, positive p, negative n:
hinge(margin + s_n - s_p), summed over triplets and both directions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.objectives.base import Batch, Objective, RuleResult, Sparse, objectives
from simgrad.objectives.spec import setting

_BLEEKER = "Bleeker & de Rijke, ECIR 2022"


def hardest_negative(similarities: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Each row's largest similarity to a negative, and where; -inf where a row has none.

    In place: the positives in `similarities` become -inf.
    """
    hardest, where = batch.fill(similarities, -torch.inf).max(1)
    return hardest, where


@objectives.declare(
    "triplet",
    paper=_BLEEKER,
    description="pushes every negative within the margin, all with weight 1",
)
@dataclass(eq=False, repr=False)
class Triplet(Objective):
    """Every negative within the margin counts, with weight 1."""

    reads_mask = False

    margin: float = setting(0.2, "how much closer than a negative the positive must be")

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        rows = len(similarities)
        # One triplet per (pair, negative): (pairs, candidates).
        negatives = batch.per_pair(batch.fill(similarities, -torch.inf))
        cost = negatives.sub_((batch.similarity - self.margin)[:, None]).clamp_(min=0)
        values = batch.per_query(cost.sum(1), rows)
        active = cost.sign_()  # 1 where the hinge is open
        pushes = active.sum(1)
        return values, batch.fill(batch.per_query(active, rows), -pushes)


@objectives.declare(
    "triplet-sh",
    paper=_BLEEKER,
    description="pushes the hardest negative alone, with weight 1, if it is within the margin",
)
@dataclass(eq=False, repr=False)
class TripletSH(Objective):
    """The hardest negative of the batch counts, with weight 1."""

    reads_mask = False

    margin: float = setting(0.2, "how much closer than the hardest negative the positive must be")

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        hardest, where = hardest_negative(similarities, batch)
        cost = self.margin + batch.per_pair(hardest) - batch.similarity
        active = (cost > 0).to(cost.dtype)
        values = batch.per_query(cost.clamp(min=0), len(similarities))
        return values, triplets(batch, batch.per_pair(where), -active, active)


def triplets(batch: Batch, negative: Tensor, on_positive: Tensor, on_negative: Tensor) -> Sparse:
    """Weights of one triplet per pair: on its positive and on one negative."""
    return Sparse(
        torch.cat([batch.query, batch.query]),
        torch.cat([batch.candidate, negative]),
        torch.cat([on_positive, on_negative]),
    )
