"""Triplet losses: every negative, or the hardest alone.

Faghri, Fleet, Kiros, Fidler: VSE++, BMVC 2018; compared by Bleeker & de Rijke, ECIR 2022 (eq. 2-3),
who call the hardest negative of the batch "semi-hard". For query q, positive p, negative n:
hinge(margin + s_n - s_p), summed over triplets and both directions.
"""

from dataclasses import dataclass

from torch import Tensor

from simgrad.core.spec import setting
from simgrad.objectives.base import objectives
from simgrad.objectives.batch import Batch
from simgrad.objectives.hardest import Hardest
from simgrad.objectives.streamed import Streamed, Summary, Verdict, columns

_BLEEKER = "Bleeker & de Rijke, ECIR 2022"


@objectives.declare(
    "triplet",
    paper=_BLEEKER,
    description="pushes every negative within the margin, all with weight 1",
)
@dataclass(eq=False, repr=False)
class Triplet(Streamed):
    """Every negative within the margin counts, with weight 1."""

    per_pair = True  # one triplet per (pair, negative)
    tile = "hinge"

    margin: float = setting(0.2, "how much closer than a negative the positive must be")

    def before(self, batch: Batch, rows: int) -> Summary:
        return (batch.similarity - self.margin,)

    def summarise(
        self, negatives: Tensor, before: Summary, first: int = 0
    ) -> tuple[Summary, Tensor | None]:
        cost = (negatives - columns(*before)[0]).clamp_(min=0)
        total = cost.sum(1)
        active = cost.sign_()  # 1 where the hinge is open
        return (total, active.sum(1)), active

    def judge(self, summary: Summary, batch: Batch) -> Verdict:
        values, pushes = summary
        return Verdict(values, -pushes)


@objectives.declare(
    "triplet-sh",
    paper=_BLEEKER,
    description="pushes the hardest negative alone, with weight 1, if it is within the margin",
)
@dataclass(eq=False, repr=False)
class TripletSH(Hardest):
    """The hardest negative of the batch counts, with weight 1."""

    margin: float = setting(0.2, "how much closer than the hardest negative the positive must be")

    def judge(self, summary: Summary, batch: Batch) -> Verdict:
        hardest, where = summary[:2]
        cost = (batch.per_pair(hardest) - batch.similarity).add_(self.margin).clamp_(min=0)
        values, active = batch.per_query(cost, len(hardest)), cost.sign()
        return Verdict(values, -active, negative=batch.per_pair(where), on_negative=active)
