"""NT-Xent: a softmax over all candidates.

Chen, Kornblith, Norouzi, Hinton: SimCLR, ICML 2020; Bleeker & de Rijke, ECIR 2022 (eq. 4).
For query q with positives P: the mean over p in P of -log softmax(s / tau)_p; half the sum of the
two directions' means.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.objectives.base import objectives
from simgrad.objectives.batch import Batch
from simgrad.objectives.streamed import Streamed, Summary, Verdict, columns
from simgrad.objectives.tensors import constant

# As in CLIP: a learned temperature may not fall below 1/100.
_LARGEST_SCALE = 100.0


@objectives.declare(
    "nt-xent",
    paper="Bleeker & de Rijke, ECIR 2022",
    description="pushes every negative by its softmax probability: the closer, the harder",
)
@dataclass(eq=False, repr=False)
class NTXent(Streamed):
    """Every negative counts, by its softmax probability."""

    mean = True
    tile = "softmax"

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
        return constant(1 / self.tau), None

    def summarise(
        self, negatives: Tensor, before: Summary, first: int = 0
    ) -> tuple[Summary, Tensor | None]:
        return (_log_sum_exp(negatives),), None

    def merge(self, parts: Summary) -> Summary:
        return (torch.logsumexp(parts[0], 0),)

    def judge(self, summary: Summary, batch: Batch) -> Verdict:
        normaliser = _with_positives(summary[0], batch)  # log of the sum over all candidates
        log_probability = batch.similarity - batch.per_pair(normaliser)
        return self._verdict(log_probability, batch, normaliser.shape[0], (normaliser,))

    def _verdict(self, log_own: Tensor, batch: Batch, rows: int, given: Summary = ()) -> Verdict:
        own = torch.expm1(log_own)  # probability - 1, however close to 0 that is
        if batch.one_each:
            return Verdict(-log_own, own, given)
        ones = torch.ones_like(own)
        share = ones / batch.per_pair(batch.per_query(ones, rows))  # 1 / |positives|
        return Verdict(batch.per_query(-log_own * share, rows), own + (1 - share), given)

    def spread(self, negatives: Tensor, given: Summary) -> Tensor:
        return (negatives - columns(*given)[0]).exp_()  # softmax

    def in_one(self, similarities: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        log_probability = similarities.log_softmax(1)
        verdict = self._verdict(batch.pick(log_probability), batch, similarities.shape[0])
        return verdict.values, batch.fill(log_probability.exp_(), verdict.on_positive)


def _with_positives(of_negatives: Tensor, batch: Batch) -> Tensor:
    """Log of the sum of exponentials, the positives' added."""
    if batch.one_each:
        return torch.logaddexp(of_negatives, batch.similarity)
    largest = of_negatives.scatter_reduce(0, batch.query, batch.similarity, "amax")
    largest = largest.clamp(min=torch.finfo(largest.dtype).min)  # a row that is not there
    own = torch.exp(batch.similarity - batch.per_pair(largest))
    total = torch.exp(of_negatives - largest) + batch.per_query(own, len(largest))
    return total.log_().add_(largest).clamp_(min=torch.finfo(largest.dtype).min)


def _log_sum_exp(x: Tensor) -> Tensor:
    """Of every row; -inf for a row of -inf."""
    largest = x.amax(1).clamp(min=torch.finfo(x.dtype).min)
    return (x - largest[:, None]).exp_().sum(1).log_().add_(largest)
