"""SmoothAP: average precision with every step replaced by a sigmoid.

Brown, Xie, Kalogeiton, Zisserman: Smooth-AP, ECCV 2020; cross-modal in Bleeker & de Rijke, ECIR
2022 (eq. 5-8). For query q and its positive i, with G_j = sigmoid((s_j - s_i) / tau):

    R_i = 1 + sum of G_j over all j != i        the smooth rank among all candidates
    P_i = 1 + sum of G_j over positives j != i  the smooth rank among positives
    AP  = mean over positives i of P_i / R_i,   loss = 1 - AP

Only rows of positives are formed, (pairs, candidates): never candidates x candidates per query.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.errors import InputError
from simgrad.objectives.base import Batch, Objective, RuleResult, objectives
from simgrad.objectives.spec import setting


@objectives.declare(
    "smooth-ap",
    paper="Bleeker & de Rijke, ECIR 2022",
    description="pushes negatives ranked next to a positive, the more the better it is ranked",
)
@dataclass(eq=False, repr=False)
class SmoothAP(Objective):
    """Negatives whose similarity is within a few tau of a positive's count."""

    mean = True

    tau: float = setting(0.01, "width of the sigmoid that replaces a step in rank")

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise InputError(f"smooth-ap: tau must be greater than 0, not {self.tau}.")

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return torch.tensor(1 / self.tau, dtype=torch.float64), None

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        rows, pairs = len(similarities), torch.arange(len(batch.query), device=similarities.device)
        above = batch.per_pair(similarities).sub_(batch.similarity[:, None]).sigmoid_()  # G
        above[pairs, batch.candidate] = above.new_zeros(())  # j != i
        others = None if batch.one_each else positives[batch.query]
        rank = 1 + above.sum(1)  # R
        rank_in_positives = torch.ones_like(rank)  # P
        if others is not None:
            rank_in_positives += above.masked_fill(~others, 0).sum(1)
        ones = torch.ones_like(rank)
        share = ones / batch.per_pair(batch.per_query(ones, rows))  # 1 / |positives|
        values = batch.per_query(share * (1 - rank_in_positives / rank), rows)

        # d(1 - P/R): a negative raises R alone; another positive raises both P and R.
        factor = share / rank**2
        weights = above.addcmul_(above, above, value=-1)  # dG_j / ds_j = G (1 - G); 0 at j = i
        weights = weights.mul_((factor * rank_in_positives)[:, None])
        if others is not None:
            ratio = (rank_in_positives - rank) / rank_in_positives
            weights = torch.where(others, weights * ratio[:, None], weights)
        weights[pairs, batch.candidate] = -weights.sum(1)
        return values, batch.per_query(weights, rows)
