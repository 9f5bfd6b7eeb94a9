"""The multi-similarity loss: a soft maximum of a query's positives, and one of its negatives.

Wang, Han, Huang, Dong, Scott: Multi-similarity loss with general pair weighting, CVPR 2019 (eq. 15,
without the mining of eq. 10, 11). For query q with positives P and negatives N:

    log(1 + sum over P of exp(-alpha (s - lambda))) / alpha  +
    log(1 + sum over N of exp(beta (s - lambda))) / beta

averaged over queries. `multi-similarity` is another thing: GOAL's cell, of the hardest negative.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from simgrad.core.spec import Range, setting
from simgrad.objectives.base import objectives
from simgrad.objectives.engine.tensors import constant
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.ntxent import with_positives
from simgrad.objectives.pairs import Pairs


@objectives.declare(
    "multi-similarity-loss",
    paper="Wang et al., CVPR 2019",
    description="pulls the farthest positives and pushes the nearest negatives by soft maxima",
    formula=r"\frac{1}{\alpha} \log(1 + \sum_{p} e^{-\alpha (s_p - \lambda)}) "
    r"+ \frac{1}{\beta} \log(1 + \sum_{n} e^{\beta (s_n - \lambda)})",
)
@dataclass(eq=False, repr=False)
class MultiSimilarity(Family):
    """The full loss of Wang et al.; `multi-similarity` is GOAL's cell of the hardest negative.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.MultiSimilarity(beta=10).weigh(S).i2t[2]
        tensor([ 0.0008,  0.1212, -0.0833])
    """

    mean = True
    totals: ClassVar[tuple[str, ...]] = ("logsumexp",)

    alpha: float = setting(2.0, "steepness on positives", search=Range(0.5, 10), above=0)
    beta: float = setting(50.0, "steepness on negatives", search=Range(5, 80), above=0)
    lambda_: float = setting(0.5, "similarity that parts positives from negatives")

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return constant(self.beta), None

    def terms(self, s: Tensor) -> Vectors:  # type: ignore[override]
        return (s,)

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        # Similarities come times beta, and so do weights go; a logarithm of 0 adds the 1.
        far = self.alpha * (self.lambda_ - pairs.similarity / self.beta)  # (pairs,)
        nothing = torch.zeros_like(totals[0])
        of_positives = with_positives(nothing, replace(pairs, similarity=far))
        of_negatives = torch.logaddexp(totals[0] - self.beta * self.lambda_, nothing)
        pull = torch.exp(far - pairs.per_pair(of_positives)) / self.beta
        given = of_negatives + self.beta * self.lambda_
        return Verdict(of_positives / self.alpha + of_negatives / self.beta, -pull, (given,))

    def push(self, s: Tensor, given: Tensor) -> Tensor:  # type: ignore[override]
        return torch.exp(s - given) / self.beta
