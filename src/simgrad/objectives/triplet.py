"""Triplet losses: every negative, or the hardest alone.

Faghri, Fleet, Kiros, Fidler: VSE++, BMVC 2018; compared by Bleeker & de Rijke, ECIR 2022 (eq. 2-3),
who call the hardest negative of the batch "semi-hard". For query q, positive p, negative n:
hinge(margin + s_n - s_p), summed over triplets and both directions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.core.spec import Range, setting
from simgrad.objectives.base import objectives
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.pairs import Pairs


@objectives.declare(
    "triplet",
    paper="Kiros et al., 2014",
    description="pushes every negative within the margin, all with weight 1",
    formula=r"\sum_{n} \max(0,\ \text{margin} + s_n - s^{+})",
)
@dataclass(eq=False, repr=False)
class Triplet(Family):
    """Every negative within the margin counts, with weight 1.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.Triplet(margin=0.7).weigh(S).i2t  # minus: pulled; plus: pushed
        tensor([[-1.,  1.,  0.],
                [ 1., -2.,  1.],
                [ 1.,  1., -2.]])
    """

    totals = ("sum", "count")
    per_pair = True  # one triplet per (pair, negative)
    graded = True
    immediate = True

    margin: float = setting(
        0.2,
        "how much closer than a negative the positive must be",
        search=Range(0.05, 0.5),
        at_least=0,
    )

    def known(self, pairs: Pairs) -> Vectors:
        return (pairs.similarity - self.margin,)

    def terms(self, s: Tensor, edge: Tensor) -> Vectors:  # type: ignore[override]
        # Not `push` again: a kernel would keep it, for which it has too few registers (34.9 ms
        # where this takes 28.3, 65,536 pairs on an H200).
        cost = torch.relu(s - edge)
        return cost, cost > 0

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        cost, open_triplets = totals
        return Verdict(pairs.per_query(pairs.graded(cost)), -pairs.graded(open_triplets))

    def push(self, s: Tensor, edge: Tensor) -> Tensor:  # type: ignore[override]
        return (s > edge).to(s.dtype)


@objectives.declare(
    "triplet-sh",
    paper="Faghri et al., BMVC 2018",
    description="pushes the hardest negative alone, with weight 1, if it is within the margin",
    formula=r"\max(0,\ \text{margin} + \max_{n} s_n - s^{+})",
)
@dataclass(eq=False, repr=False)
class TripletSH(Family):
    """The hardest negative of the batch counts, with weight 1.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.TripletSH(margin=0.7).weigh(S).i2t  # minus: pulled; plus: pushed
        tensor([[-1.,  1.,  0.],
                [ 1., -1.,  0.],
                [ 0.,  1., -1.]])
    """

    totals = ("max",)
    sparse = graded = True

    margin: float = setting(
        0.2,
        "how much closer than the hardest negative the positive must be",
        search=Range(0.05, 0.5),
        at_least=0,
    )

    def terms(self, s: Tensor) -> Vectors:  # type: ignore[override]
        return (s,)

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        hardest = pairs.per_pair(totals[0])
        cost = torch.relu(self.margin + hardest - pairs.similarity)
        is_open = pairs.graded(torch.sign(cost))
        return Verdict(pairs.per_query(pairs.graded(cost)), -is_open, on_hardest=is_open)
