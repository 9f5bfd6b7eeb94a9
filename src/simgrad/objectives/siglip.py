"""SigLIP: every pair is a yes-or-no question of its own.

Zhai, Mustafa, Kolesnikov, Beyer: Sigmoid loss for language image pre-training, ICCV 2023.
For each pair, -log sigmoid(±(scale * s + bias)): plus for positives, minus for negatives. Summed
over candidates, half the sum of the two directions' means: for n pairs that is 1/n times the sum.
Each pair counts by itself, so those of a text that is nobody's count like any other negative; the
means are over images and texts with a positive.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from simgrad.core.spec import Range, setting
from simgrad.objectives.base import objectives
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.pairs import Pairs


@objectives.declare(
    "siglip",
    paper="Zhai et al., ICCV 2023",
    description="pushes each negative by a sigmoid of its own similarity, whatever the others do",
    formula=r"-\log \sigma(\text{scale} \cdot s^{+} + \text{offset}) "
    r"- \sum_{n} \log \sigma(-\text{scale} \cdot s_n - \text{offset})",
)
@dataclass(eq=False, repr=False)
class SigLIP(Family):
    """Every pair counts by itself.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> objective = simgrad.objectives.SigLIP()
        >>> objective.weigh(S).i2t[2]
        tensor([ 2.0566e-04,  2.9977e-02, -1.6555e+00])
        >>> [name for name, _ in objective.named_parameters()]  # for the optimiser
        ['log_scale', 'bias']
    """

    mean = True
    totals = ("sum", "sum")
    immediate = True
    pushing = 1
    symmetric = pairwise = True

    scale: float = setting(
        10.0,
        "factor of the similarities (start value if learned)",
        search=Range(3, 60),
        above=0,
    )
    offset: float = setting(
        -10.0, "added to them (start value if learned)", search=Range(-20, -2, log=False)
    )
    learned: bool = setting(True, "learn scale and offset, as published")

    starting = ("scale", "offset", "learned")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.log_scale = nn.Parameter(torch.tensor([math.log(self.scale)]), self.learned)
        self.bias = nn.Parameter(torch.tensor([float(self.offset)]), self.learned)

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return self.log_scale.exp().squeeze(0), self.bias.squeeze(0)

    def start_at(self, scale: float, bias: float) -> bool:
        if not self.learned or self.chosen("scale") or self.chosen("offset"):
            return False
        with torch.no_grad():
            self.log_scale.fill_(math.log(scale))
            self.bias.fill_(bias or self.offset)  # a model of a softmax has none
        return True

    def terms(self, s: Tensor) -> Vectors:  # type: ignore[override]
        return softplus(s), torch.sigmoid(s)

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        on_negatives, pushed = totals
        values = on_negatives + pairs.per_query(softplus(-pairs.similarity))
        return Verdict(values, -torch.sigmoid(-pairs.similarity), pushed=pushed)
