"""SmoothAP: average precision with every step replaced by a sigmoid.

Brown, Xie, Kalogeiton, Zisserman: Smooth-AP, ECCV 2020; cross-modal in Bleeker & de Rijke, ECIR
2022 (eq. 5-8). For query q and its positive i, with G_j = sigmoid((s_j - s_i) / tau):

    R_i = 1 + sum of G_j over all j != i        the smooth rank among all candidates
    P_i = 1 + sum of G_j over positives j != i  the smooth rank among positives
    AP  = mean over positives i of P_i / R_i,   loss = 1 - AP
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.core.spec import Range, setting
from simgrad.objectives.base import objectives
from simgrad.objectives.engine.tensors import add_at, constant, rows_at
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.pairs import Pairs


@objectives.declare(
    "smooth-ap",
    paper="Brown et al., ECCV 2020",
    description="pushes negatives ranked next to a positive, the more the better it is ranked",
    formula=r"1 - \frac{1}{|P|} \sum_{i \in P} \frac{1 + \sum_{j \in P, j \neq i} G_{ij}}"
    r"{1 + \sum_{j \neq i} G_{ij}},\quad G_{ij} = \sigma\left(\frac{s_j - s_i}{\tau}\right)",
)
@dataclass(eq=False, repr=False)
class SmoothAP(Family):
    """Negatives whose similarity is within a few tau of a positive's count.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.SmoothAP(tau=0.1).weigh(S).i2t[2]
        tensor([ 0.0096,  0.1071, -0.1167])
    """

    mean = True
    totals = ("sum", "sum")
    per_pair = True  # each positive has a rank of its own
    pushing = 1  # the slope

    tau: float = setting(
        0.01,
        "width of the sigmoid that replaces a step in rank",
        search=Range(0.003, 0.1),
        above=0,
    )

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return constant(1 / self.tau), None

    def known(self, pairs: Pairs) -> Vectors:
        return (pairs.similarity,)

    def terms(self, s: Tensor, own: Tensor) -> Vectors:  # type: ignore[override]
        above = torch.sigmoid(s - own)  # G
        return above, above - above * above  # and its slope

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        of_negatives, slope = totals
        if pairs.one_each:  # P is 1
            inverse = 1 / (1 + of_negatives)
            factor = inverse * inverse
            return Verdict(1 - inverse, -factor * slope, (pairs.similarity, factor))
        i, j, there = pairs.together  # the query's other positives j, seen from i
        own = pairs.similarity
        above, among = self.terms(rows_at(own, j), rows_at(own, i))
        if there is not None:
            above, among = above * there, among * there
        P = add_at(torch.ones_like(own), i, above)
        R = P + of_negatives
        # d(1 - P/R): a negative raises R alone; another positive raises both P and R.
        factor = pairs.share * P / R**2
        on_others = rows_at(pairs.share * (P - R) / R**2, i) * among
        weights = add_at(-factor * slope, i, -on_others)
        weights = add_at(weights, j, on_others)
        return Verdict(pairs.per_query(pairs.share * (1 - P / R)), weights, (own, factor))
