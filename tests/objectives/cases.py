"""The objectives and the batches that every test of this folder walks.

Objectives come from the registry, so a new declaration is tested at once, plus two declared here
as a user would: one by a rule on whole rows, one in pieces.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.objectives import Family, Offline, Verdict, declare, objective, objectives, setting
from simgrad.objectives.base import Objective
from simgrad.objectives.goal import PAIR_WEIGHTS, TRIPLET_WEIGHTS

# Declarations with parameters other than their defaults, where these change the code that runs.
VARIANTS = [
    "triplet(margin=0.5)",
    "nt-xent(tau=0.3)",
    "nt-xent(tau=0.2, learned=true)",
    "debiased-nt-xent(tau=0.5, prior=0.2)",
    "focused-deviance(focus=0.1, lambda=0.3, alpha=4, beta=5)",
    "multi-similarity-loss(alpha=4, beta=5, lambda=0.1)",
    "nca-loss(tau=0.3)",
    "smooth-ap(tau=0.1)",
    "siglip(scale=5, offset=-2, learned=false)",
    "adap-off-quin(alpha=0.5, beta=1, online=0.3, offline=0.1)",
    *(
        f"goal(triplet={t}, pair={p}, released={r})"
        for t in TRIPLET_WEIGHTS
        for p in PAIR_WEIGHTS
        for r in ("false", "true")
    ),
]


def _squares():  # type: ignore[no-untyped-def]
    """An objective declared as the documentation shows it; taken out of the registry again."""

    @declare("test-squares", description="pushes negatives by their square", mean=True)
    def squares(similarities, positives, pairs, power: float = 2.0):  # type: ignore[no-untyped-def]
        shifted = (similarities + 1).clamp(min=0).masked_fill(positives, 0)
        weights = power * shifted ** (power - 1)
        pull = -torch.ones_like(pairs.similarity)
        weights = weights.index_put((pairs.query, pairs.candidate), pull)
        values = shifted.pow(power).sum(1)
        return values + pairs.per_query(-pairs.similarity, len(similarities)), weights

    del objectives._declared["test-squares"]
    return squares


Squares = _squares()


@objectives.declare("test-pieces", paper="", description="pushes what is near")
@dataclass(eq=False, repr=False)
class Pieces(Family):
    """Declared in pieces; taken out of the registry again."""

    mean = True
    totals = ("sum", "logsumexp")
    power: float = setting(2.0, "how steep")

    def terms(self, s):  # type: ignore[no-untyped-def]
        return torch.relu(s + 0.5) * torch.relu(s + 0.5), self.power * s

    def judge(self, totals, pairs):  # type: ignore[no-untyped-def]
        total = totals[1].clamp(min=-1e4)  # of a query without negatives it is -inf
        values = totals[0] + total - pairs.per_query(pairs.similarity)
        return Verdict(values, -torch.ones_like(pairs.similarity), (total,))

    def push(self, s, total):  # type: ignore[no-untyped-def]
        return 2 * torch.relu(s + 0.5) + self.power * torch.exp(self.power * s - total)


del objectives._declared["test-pieces"]


def everything() -> list[Objective]:
    """Every declared objective at its defaults, the variants, and two of a user's own."""
    specs = [*(d.name for d in objectives), *VARIANTS]
    distinct = {str(o): o for o in map(objective, specs)}
    return [*distinct.values(), Squares(power=3.0), Pieces(power=3.0)]


def names(objectives_: list[Objective]) -> list[str]:
    return [str(o) for o in objectives_]


@dataclass(frozen=True)
class Case:
    """A batch of similarities with its positives, in each public form and as a mask."""

    name: str
    S: Tensor
    positives: Tensor | None
    mask: Tensor

    def offline(self, o: Objective) -> Offline | None:
        if not o.needs_offline:
            return None
        generator = torch.Generator().manual_seed(5)
        four = torch.rand(4, int(self.mask.sum()), generator=generator, dtype=self.S.dtype)
        return Offline(*(1.4 * four - 0.4))


def _signed(n: int, m: int, seed: int) -> Tensor:
    return 2 * torch.rand(n, m, generator=torch.Generator().manual_seed(seed)).double() - 1


def _index_mask(index: Tensor, images: int) -> Tensor:
    return torch.arange(images)[:, None] == index[None]


def cases() -> list[Case]:
    """Signed similarities: square, several captions, several images, ties, duplicates, lone."""
    index = torch.tensor([2, 0, 1, 1, 3, 0, 2, 2, 3])
    shared = torch.tensor(
        [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 0, 0, 0, 1]], dtype=torch.bool
    )
    lone = torch.tensor([[1, 1, 1], [0, 1, 0], [0, 1, 1]], dtype=torch.bool)
    duplicated = _signed(6, 6, 3)
    duplicated[3], duplicated[:, 4] = duplicated[1], duplicated[:, 2]
    ties = (_signed(7, 7, 4) * 4).round() / 4
    diagonal = torch.eye(6, dtype=torch.bool)
    return [
        Case("square", _signed(6, 6, 0), None, diagonal),
        Case("captions", _signed(4, 9, 1), index, _index_mask(index, 4)),
        Case("mask", _signed(4, 5, 2), shared, shared),
        Case("duplicates", duplicated, None, diagonal),
        Case("ties", ties, None, torch.eye(7, dtype=torch.bool)),
        Case("lone", _signed(3, 3, 6), lone, lone),
    ]
