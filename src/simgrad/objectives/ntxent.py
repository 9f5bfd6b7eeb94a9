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
    reads_mask = False

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
        return torch.tensor(1 / self.tau, dtype=torch.float64), None

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        rows = len(similarities)
        largest, where = similarities.max(1)
        weights = similarities.softmax(1)
        # The largest probability cannot underflow, so the normaliser's logarithm is safe in it.
        normaliser = largest - weights.gather(1, where[:, None]).squeeze(1).log()
        ones = torch.ones_like(batch.similarity)
        share = ones / batch.per_pair(batch.per_query(ones, rows))  # 1 / |positives|
        surprise = batch.per_pair(normaliser) - batch.similarity
        own = weights[batch.query, batch.candidate]
        return batch.per_query(surprise * share, rows), batch.fill(weights, own - share)
