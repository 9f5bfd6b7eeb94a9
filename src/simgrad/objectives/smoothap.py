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

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        rows = len(similarities)
        own = batch.similarity[:, None]
        above = batch.per_pair(similarities).sub(own).div_(self.tau).sigmoid_()  # G
        above.scatter_(1, batch.candidate[:, None], 0)  # j != i
        positive = batch.per_pair(positives)
        rank = 1 + above.sum(1)  # R
        rank_in_positives = 1 + (above * positive).sum(1)  # P
        ones = torch.ones_like(rank)
        share = ones / batch.per_pair(batch.per_query(ones, rows))  # 1 / |positives|
        values = batch.per_query(share * (1 - rank_in_positives / rank), rows)

        slope = above.mul_(1 - above).div_(self.tau)  # dG_j / ds_j; 0 at j = i
        factor = (share / rank**2)[:, None]
        # d(1 - P/R): a negative raises R alone; another positive raises both P and R.
        on_negative = rank_in_positives[:, None]
        on_positive = (rank_in_positives - rank)[:, None]
        weights = slope.mul_(torch.where(positive, on_positive, on_negative)).mul_(factor)
        pull = -weights.sum(1)
        weights.scatter_(1, batch.candidate[:, None], pull[:, None])
        return values, batch.per_query(weights, rows)
