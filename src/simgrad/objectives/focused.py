"""Focused deviance: a sigmoid of its own similarity for each pair, over the hardest few negatives.

Our own. With negatives n and h = focus * log sum_n exp(s_n / focus), their soft maximum, a query
with positives P has the value

    mean over p in P of log(1 + exp(alpha (lambda - s_p))) / alpha  +
    log(1 + exp(beta (h - lambda))) / beta

`focus` says how many negatives count: all while their similarities are alike, as they are at the
beginning, the hardest few once they differ. As focus goes to 0 it is binomial deviance of the
hardest negative, without GOAL's margin; with focus = 1 / beta the second line is that of the
multi-similarity loss (Wang et al., CVPR 2019). alpha, beta and lambda are GOAL's.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from simgrad.core.spec import Range, setting
from simgrad.objectives.base import objectives
from simgrad.objectives.engine.tensors import constant
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.pairs import Pairs


@objectives.declare(
    "focused-deviance",
    paper="simgrad",
    description="weighs the positive and the hardest few negatives by sigmoids of their similarity",
    formula=r"\frac{1}{\alpha} \log(1 + e^{\alpha (\lambda - s^{+})}) "
    r"+ \frac{1}{\beta} \log(1 + e^{\beta (h - \lambda)}),\quad "
    r"h = \text{focus}\ \log \sum_{n} e^{s_n/\text{focus}}",
)
@dataclass(eq=False, repr=False)
class FocusedDeviance(Family):
    """All negatives while similarities are alike, the hardest few once they differ.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.FocusedDeviance(focus=0.2).weigh(S).i2t[2]
        tensor([ 0.0577,  0.7032, -0.5000])
    """

    totals: ClassVar[tuple[str, ...]] = ("logsumexp",)
    graded = True

    focus: float = setting(
        0.02, "temperature of the choice of negatives: the lower, the fewer",
        search=Range(0.003, 0.1), above=0,
    )  # fmt: skip
    lambda_: float = setting(
        0.5, "similarity that parts positives from negatives", search=Range(0.3, 0.7, log=False)
    )
    alpha: float = setting(2.0, "steepness on positives", above=0)
    beta: float = setting(10.0, "steepness on negatives", above=0)

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return constant(1 / self.focus), None

    def terms(self, s: Tensor) -> Vectors:  # type: ignore[override]
        return (s,)

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        limits = torch.finfo(totals[0].dtype)
        soft_maximum = totals[0].clamp(min=limits.min)  # a row without negatives has -inf
        far = self.alpha * (self.lambda_ - self.focus * pairs.similarity)  # (pairs,)
        near = self.beta * (self.focus * soft_maximum - self.lambda_)  # (queries,)
        values = pairs.per_query(softplus(far) * pairs.share) / self.alpha
        pull = self.focus * torch.sigmoid(far) * pairs.share
        # exp(s - given) is the push: a softmax over negatives, times what is due to h.
        strength = (self.focus * torch.sigmoid(near)).clamp(min=limits.tiny)
        given = soft_maximum - strength.log()
        return Verdict(values + softplus(near) / self.beta, -pull, (given,))

    def push(self, s: Tensor, given: Tensor) -> Tensor:  # type: ignore[override]
        return torch.exp(s - given)
