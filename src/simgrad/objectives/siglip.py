"""SigLIP: every pair is a yes-or-no question of its own.

Zhai, Mustafa, Kolesnikov, Beyer: Sigmoid loss for language image pre-training, ICCV 2023.
For each pair, -log sigmoid(±(scale * s + bias)): plus for positives, minus for negatives. Summed
over candidates, half the sum of the two directions' means: for n pairs that is 1/n times the sum.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from simgrad.errors import InputError
from simgrad.objectives.base import Batch, Objective, RuleResult, objectives
from simgrad.objectives.spec import setting


@objectives.declare(
    "siglip",
    paper="Zhai et al., ICCV 2023",
    description="pushes each negative by a sigmoid of its own similarity, whatever the others do",
)
@dataclass(eq=False, repr=False)
class SigLIP(Objective):
    """Every pair counts by itself."""

    mean = True
    reads_mask = False

    scale: float = setting(10.0, "factor of the similarities (start value where learned)")
    offset: float = setting(-10.0, "added to them (start value where learned)")
    learned: bool = setting(True, "learn scale and offset, as published")

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise InputError(f"siglip: scale must be greater than 0, not {self.scale}.")
        self.log_scale = nn.Parameter(torch.tensor(math.log(self.scale)), self.learned)
        self.bias = nn.Parameter(torch.tensor(self.offset), self.learned)

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return self.log_scale.exp(), self.bias

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        rows = len(similarities)
        own = batch.similarity
        logits = batch.fill(similarities, -torch.inf)  # a positive is no negative
        values = softplus(logits).sum(1) + batch.per_query(softplus(-own), rows)
        return values, batch.fill(logits.sigmoid_(), -torch.sigmoid(-own))
