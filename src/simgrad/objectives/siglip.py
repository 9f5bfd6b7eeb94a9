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

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.objectives.base import objectives
from simgrad.objectives.batch import Batch
from simgrad.objectives.streamed import Streamed, Summary, Verdict


@objectives.declare(
    "siglip",
    paper="Zhai et al., ICCV 2023",
    description="pushes each negative by a sigmoid of its own similarity, whatever the others do",
)
@dataclass(eq=False, repr=False)
class SigLIP(Streamed):
    """Every pair counts by itself."""

    mean = True
    symmetric = True
    tile = "sigmoid"

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

    def summarise(
        self, negatives: Tensor, before: Summary, first: int = 0
    ) -> tuple[Summary, Tensor | None]:
        weights = negatives.sigmoid()
        return (softplus(negatives).sum(1), weights.sum(1)), weights

    def judge(self, summary: Summary, batch: Batch) -> Verdict:
        on_negatives, pushed = summary
        turned = -batch.similarity
        own = batch.per_query(softplus(turned), len(pushed))
        return Verdict(on_negatives + own, -turned.sigmoid_(), pushed=pushed)

    def in_one(self, similarities: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        # With their sign turned, positives too are pushed; with that of their weights, pulled.
        turned = batch.turn(similarities)
        return softplus(turned).sum(1), batch.turn(turned.sigmoid())
