"""NT-Xent: a softmax over all candidates.

Chen, Kornblith, Norouzi, Hinton: SimCLR, ICML 2020; Bleeker & de Rijke, ECIR 2022 (eq. 4).
For query q with positives P: the mean over p in P of -log softmax(s / tau)_p; half the sum of the
two directions' means.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simgrad.errors import InputError
from simgrad.objectives.base import Batch, Objective, RuleResult, objectives
from simgrad.objectives.spec import setting

# As in CLIP: a learned temperature may not fall below 1/100.
_LARGEST_SCALE = 100.0


@objectives.declare(
    "nt-xent",
    paper="Bleeker & de Rijke, ECIR 2022",
    description="pushes every negative by its softmax probability: the closer, the harder",
)
@dataclass(eq=False, repr=False)
class NTXent(Objective):
    """Every negative counts, by its softmax probability."""

    mean = True

    tau: float = setting(0.1, "temperature of the softmax")
    learned: bool = setting(False, "learn the temperature, starting from tau, as CLIP does")

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise InputError(f"nt-xent: tau must be greater than 0, not {self.tau}.")
        if self.learned:
            self.log_scale = nn.Parameter(torch.tensor(math.log(1 / self.tau)))

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        if self.learned:
            return self.log_scale.exp().clamp(max=_LARGEST_SCALE), None
        return None, None

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        tau = 1.0 if self.learned else self.tau  # the frame has applied a learned scale already
        logits = similarities / tau
        # log of the normaliser; the largest logit is subtracted first, so nothing overflows.
        normaliser = logits.logsumexp(1)
        weights = logits.sub_(normaliser[:, None]).exp_()  # softmax probabilities
        rows = len(similarities)
        ones = torch.ones_like(batch.similarity)
        count = batch.per_query(ones, rows)  # positives of each query
        share = ones / batch.per_pair(count)
        surprise = batch.per_pair(normaliser) - batch.similarity / tau
        values = batch.per_query(surprise * share, rows)
        # A query without a negative contributes nothing.
        lone = count == _candidates(similarities)
        weights.index_put_((batch.query, batch.candidate), -share, accumulate=True)
        weights = weights.div_(tau).masked_fill_(lone[:, None], 0)
        return values.masked_fill(lone, 0), weights


def _candidates(similarities: Tensor) -> Tensor:
    """How many candidates each row has; one that is not there has similarity -inf."""
    return (similarities > -torch.inf).sum(1)
