"""Debiased NT-Xent: a softmax that expects some of its negatives to be positives.

Chuang, Robinson, Lin, Torralba, Jegelka: Debiased contrastive learning, NeurIPS 2020 (eq. 7, 8).
With N negatives, of which a share `prior` is thought to be positives, and e = exp(s / tau): the
sum over negatives becomes N times

    max( (mean of e over negatives - prior * e of the positive) / (1 - prior),  exp(-1 / tau) )

With prior 0 it is NT-Xent. Several positives are taken by their mean of e, as if each were the one.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from simgrad.core.spec import setting
from simgrad.objectives.base import objectives
from simgrad.objectives.family import Vectors, Verdict
from simgrad.objectives.ntxent import NTXent
from simgrad.objectives.pairs import Pairs


@objectives.declare(
    "debiased-nt-xent",
    paper="Chuang et al., NeurIPS 2020",
    description="NT-Xent that expects a share of its negatives to be right",
    formula=r"-\log \frac{e^{s^{+}/\tau}}{e^{s^{+}/\tau} + N g},\quad "
    r"g = \max\left(\frac{\frac{1}{N} \sum_{n} e^{s_n/\tau} - \text{prior}\ e^{s^{+}/\tau}}"
    r"{1 - \text{prior}},\ e^{-1/\tau}\right)",
)
@dataclass(eq=False, repr=False)
class DebiasedNTXent(NTXent):
    """NT-Xent, less what false negatives are expected to add.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.DebiasedNTXent(prior=0.1).weigh(S).i2t[2]
        tensor([ 0.0089,  1.3183, -1.3272])
    """

    totals: ClassVar[tuple[str, ...]] = ("logsumexp", "count")
    graded = False  # its estimate is of equal positives

    prior: float = setting(
        0.01, "probability that a negative is an unlabelled positive", at_least=0, below=1
    )

    def terms(self, s: Tensor) -> Vectors:  # type: ignore[override]
        return s, s > -math.inf

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        negatives, count = totals
        if pairs.one_each:
            largest = torch.maximum(negatives, pairs.similarity)
        else:
            largest = negatives.scatter_reduce(0, pairs.query, pairs.similarity, "amax")
        largest = largest.clamp(min=-1 / self.tau)  # a row that is not there
        own = torch.exp(pairs.similarity - pairs.per_pair(largest))
        expected = self.prior * count * pairs.per_query(own * pairs.share)
        estimate = (torch.exp(negatives - largest) - expected) / (1 - self.prior)
        least = count * torch.exp(-1 / self.tau - largest)
        is_open = estimate > least
        whole = pairs.per_query(own) + torch.maximum(estimate, least)
        whole = whole.clamp(min=torch.finfo(whole.dtype).tiny)
        normaliser = whole.log() + largest
        taken = is_open * count * (self.prior / (1 - self.prior))
        pull = own / pairs.per_pair(whole) * (1 - pairs.per_pair(taken) * pairs.share)
        values = pairs.per_query((pairs.per_pair(normaliser) - pairs.similarity) * pairs.share)
        # exp(s - given) is the push. Where the lower bound holds there is none: 1e4 makes it 0.
        given = normaliser + math.log1p(-self.prior) + 1e4 * ~is_open
        return Verdict(values, pull - pairs.share, (given,))
