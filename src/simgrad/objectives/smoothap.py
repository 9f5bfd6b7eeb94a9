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

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.objectives.base import RuleResult, objectives
from simgrad.objectives.batch import Batch
from simgrad.objectives.streamed import Streamed, Summary, Verdict, columns
from simgrad.objectives.tensors import constant


@objectives.declare(
    "smooth-ap",
    paper="Bleeker & de Rijke, ECIR 2022",
    description="pushes negatives ranked next to a positive, the more the better it is ranked",
)
@dataclass(eq=False, repr=False)
class SmoothAP(Streamed):
    """Negatives whose similarity is within a few tau of a positive's count."""

    mean = True
    per_pair = True
    tile = "rank"

    tau: float = setting(0.01, "width of the sigmoid that replaces a step in rank")

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise InputError(f"smooth-ap: tau must be greater than 0, not {self.tau}.")

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return constant(1 / self.tau), None

    def before(self, batch: Batch, rows: int) -> Summary:
        return (batch.similarity,)

    def summarise(
        self, negatives: Tensor, before: Summary, first: int = 0
    ) -> tuple[Summary, Tensor | None]:
        return self._ranked(negatives, before)[0], None

    def _ranked(self, negatives: Tensor, before: Summary) -> tuple[Summary, Tensor]:
        """The summary, and dG/ds."""
        above = (negatives - columns(*before)[0]).sigmoid_()  # G
        total = above.sum(1)
        slopes = above.addcmul_(above, above, value=-1)  # G (1 - G)
        return (total, slopes.sum(1)), slopes

    def judge(self, summary: Summary, batch: Batch) -> Verdict:
        rank, slope = 1 + summary[0], summary[1]  # R; P is 1 where a query has one positive
        inverse = 1 / rank
        factor = inverse * inverse
        return Verdict(1 - inverse, -factor * slope, (batch.similarity, factor))

    def spread(self, negatives: Tensor, given: Summary) -> Tensor:
        own, factor = columns(*given)
        above = (negatives - own).sigmoid_()
        return above.addcmul_(above, above, value=-1).mul_(factor)

    def in_one(self, similarities: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        negatives = batch.fill(similarities, -torch.inf)
        summary, slopes = self._ranked(negatives, (batch.similarity,))
        verdict = self.judge(summary, batch)
        weights = slopes.mul_(columns(*verdict.given)[1])
        return verdict.values, batch.fill(weights, verdict.on_positive)

    def rule_of_several(self, similarities: Tensor, batch: Batch) -> RuleResult:
        rows, pairs = len(similarities), torch.arange(len(batch.query), device=similarities.device)
        positives = torch.zeros_like(similarities, dtype=torch.bool)
        others = batch.fill(positives, True)[batch.query]
        above = similarities[batch.query].sub_(batch.similarity[:, None]).sigmoid_()
        above[pairs, batch.candidate] = above.new_zeros(())  # j != i
        rank = 1 + above.sum(1)
        rank_in_positives = 1 + above.masked_fill(~others, 0).sum(1)
        ones = torch.ones_like(rank)
        share = ones / batch.per_pair(batch.per_query(ones, rows))  # 1 / |positives|
        values = batch.per_query(share * (1 - rank_in_positives / rank), rows)

        # d(1 - P/R): a negative raises R alone; another positive raises both P and R.
        slope = above.addcmul_(above, above, value=-1).mul_((share / rank**2)[:, None])
        on_others = slope * (rank_in_positives - rank)[:, None]
        weights = torch.where(others, on_others, slope.mul_(rank_in_positives[:, None]))
        weights[pairs, batch.candidate] = -weights.sum(1)
        return values, batch.per_query(weights, rows)
