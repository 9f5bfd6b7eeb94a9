"""NT-Xent: a softmax over all candidates.

Chen, Kornblith, Norouzi, Hinton: SimCLR, ICML 2020; Bleeker & de Rijke, ECIR 2022 (eq. 4).
For query q with positives P: the mean over p in P of -log softmax(s / tau)_p; half the sum of the
two directions' means.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import Range, setting
from simgrad.objectives.base import objectives
from simgrad.objectives.engine.tensors import constant
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.pairs import Pairs

# As in CLIP: a learned temperature may not fall below 1/100.
_LARGEST_SCALE = 100.0


@objectives.declare(
    "nt-xent",
    paper="Chen et al., ICML 2020",
    description="pushes every negative by its softmax probability: the closer, the harder",
    formula=r"-\log \frac{e^{s^{+}/\tau}}{e^{s^{+}/\tau} + \sum_{n} e^{s_n/\tau}}",
)
@dataclass(eq=False, repr=False)
class NTXent(Family):
    """Every negative counts, by its softmax probability.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.NTXent(tau=0.1).weigh(S).i2t[2]  # the closer a negative, the harder
        tensor([ 0.0082,  1.2125, -1.2206])
    """

    mean = True
    graded: ClassVar[bool] = True
    totals: ClassVar[tuple[str, ...]] = ("logsumexp",)

    tau: float = setting(0.1, "temperature of the softmax", search=Range(0.01, 0.3), above=0)
    learned: bool = setting(False, "learn the temperature, starting from tau, as CLIP does")

    @property
    def starting(self) -> tuple[str, ...]:
        return ("tau", "learned") if self.learned else ("learned",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learned:
            if self.tau * _LARGEST_SCALE < 1:
                raise InputError(
                    f"{self.name or 'nt-xent'}: a learned temperature is at least "
                    f"{1 / _LARGEST_SCALE}, as CLIP's; tau is {self.tau}."
                )
            self.log_scale = nn.Parameter(torch.tensor([math.log(1 / self.tau)]))

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        if self.learned:
            # What the last step moved beyond the end is put back there. Were only the scale cut
            # off, its derivative would be 0 from then on.
            end = math.log(_LARGEST_SCALE)
            if not torch._C._are_functorch_transforms_active():  # these allow no change in place
                with torch.no_grad():
                    self.log_scale.clamp_(max=end)
            beyond = (self.log_scale.detach() - end).clamp(min=0)
            return (self.log_scale - beyond).exp().squeeze(0), None
        return constant(1 / self.tau), None

    def start_at(self, scale: float, bias: float) -> bool:
        if not self.learned or self.chosen("tau"):
            return False
        with torch.no_grad():
            self.log_scale.fill_(math.log(min(scale, _LARGEST_SCALE)))
        return True

    def terms(self, s: Tensor) -> Vectors:  # type: ignore[override]
        return (s,)

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        normaliser = with_positives(totals[0], pairs)  # log of the sum over all candidates
        log_probability = pairs.similarity - pairs.per_pair(normaliser)
        missing = torch.expm1(log_probability)  # probability - 1, however close to 0 that is
        if pairs.one_each:
            return Verdict(-log_probability, missing, (normaliser,))
        values = pairs.per_query(-log_probability * pairs.share)
        return Verdict(values, missing + (1 - pairs.share), (normaliser,))

    def push(self, s: Tensor, normaliser: Tensor) -> Tensor:  # type: ignore[override]
        return torch.exp(s - normaliser)


def with_positives(of_negatives: Tensor, pairs: Pairs) -> Tensor:
    """Log of the sum of exponentials, the positives' added."""
    if pairs.one_each:
        return torch.logaddexp(of_negatives, pairs.similarity)
    largest = of_negatives.scatter_reduce(0, pairs.query, pairs.similarity, "amax")
    largest = largest.clamp(min=torch.finfo(largest.dtype).min)  # a row that is not there
    own = torch.exp(pairs.similarity - pairs.per_pair(largest))
    total = torch.exp(of_negatives - largest) + pairs.per_query(own)
    return total.log_().add_(largest).clamp(min=torch.finfo(largest.dtype).min)
