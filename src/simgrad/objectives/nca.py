"""NCA: the probability that a query finds any of its positives.

Goldberger, Roweis, Hinton, Salakhutdinov: Neighbourhood components analysis, NIPS 2004 (section 2,
the logarithm of p_i); MIL-NCE of Miech et al., CVPR 2020, is the same of videos and sentences.
For query q with positives P: -log of the sum over p in P of softmax(s / tau)_p. NT-Xent has the
logarithm inside the sum: it wants all positives near, NCA one. With one positive they are the same.
"""

from dataclasses import dataclass

import torch

from simgrad.objectives.base import objectives
from simgrad.objectives.family import Vectors, Verdict
from simgrad.objectives.ntxent import NTXent, with_positives
from simgrad.objectives.pairs import Pairs


@objectives.declare(
    "nca-loss",
    paper="Goldberger et al., NIPS 2004",
    description="pushes every negative by its softmax probability, and pulls the nearest positives",
    formula=r"-\log \frac{\sum_{p} e^{s_p/\tau}}{\sum_{p} e^{s_p/\tau} + \sum_{n} e^{s_n/\tau}}",
)
@dataclass(eq=False, repr=False)
class NCA(NTXent):
    """A softmax whose positives count together; `nca` is GOAL's cell of the hardest negative.

    Examples:
        >>> S, both = torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[True, True, False]])
        >>> positives = simgrad.objectives.Positives.of_mask(both)
        >>> simgrad.objectives.NCA(tau=0.1).weigh(S, positives).i2t  # the nearer is pulled
        tensor([[-0.5760, -0.0105,  0.5866]])
    """

    graded = False  # of a sum of probabilities, none is a pair's own

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        every = with_positives(totals[0], pairs)
        right = with_positives(torch.full_like(totals[0], -torch.inf), pairs)
        own, other = (torch.exp(pairs.similarity - pairs.per_pair(x)) for x in (right, every))
        return Verdict(every - right, other - own, (every,))
