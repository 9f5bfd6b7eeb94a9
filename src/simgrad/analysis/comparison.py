"""Two objectives on the same batch: where their weights differ, and on which pairs.

Objectives have scales of their own, so each direction's weights are first divided by the sum of
their magnitudes: they become shares of that objective's gradient.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from simgrad.core.devices import widened
from simgrad.objectives import Objective, Offline, Positives
from simgrad.objectives import objective as read


@dataclass(frozen=True)
class PairDifference:
    """One pair that two objectives weigh differently, as shares of each one's gradient."""

    direction: str
    image: int  # row of the batch
    caption: int  # column of the batch
    positive: bool
    similarity: float
    first: float
    second: float

    @property
    def difference(self) -> float:
        return self.second - self.first


@dataclass(frozen=True)
class WeightComparison:
    """How two objectives differ on a batch.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> found = simgrad.analysis.compare("triplet-sh", "nt-xent", S)
        >>> round(found.overlap["i2t"], 2)  # three quarters of the gradient is on the same pairs
        0.76
        >>> found.pairs[0].image, found.pairs[0].caption  # where they differ most
        (0, 1)
    """

    first: str
    second: str
    cosine: dict[str, float]  # direction -> cosine of the angle between the two weight matrices
    overlap: dict[str, float]  # direction -> share of the gradient that both put on the same pairs
    pairs: tuple[PairDifference, ...]  # largest difference first

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        pairs = [{**asdict(pair), "difference": pair.difference} for pair in self.pairs]
        return {**asdict(self), "pairs": pairs}

    def table(
        self, captions: Sequence[str] | None = None, images: Sequence[str] | None = None
    ) -> list[tuple[str, ...]]:
        """Rows to print, with captions and image names where they are given."""
        return [
            (
                pair.direction,
                images[pair.image] if images else str(pair.image),
                "positive" if pair.positive else "negative",
                f"{pair.similarity:.3f}",
                f"{100 * pair.first:+.2f}%",
                f"{100 * pair.second:+.2f}%",
                captions[pair.caption] if captions else str(pair.caption),
            )
            for pair in self.pairs
        ]


@torch.no_grad()
def compare(
    first: "str | Objective",
    second: "str | Objective",
    similarities: Tensor,
    positives: "Tensor | Positives | None" = None,
    *,
    top: int = 10,
    offline: Offline | None = None,
) -> WeightComparison:
    """The `top` pairs of a batch that two objectives weigh most differently.

    Examples:
        >>> S = torch.tensor([[0.9, 0.7, 0.1], [0.2, 0.8, 0.3], [0.4, 0.1, 0.6]])
        >>> found = simgrad.analysis.compare("triplet-sh", "nt-xent", S, top=1)
        >>> found.table()
        [('i2t', '2', 'positive', '0.600', '+0.00%', '-24.59%', '2')]
    """
    rules = read(first), read(second)
    weighed = [
        rule.weigh(similarities, positives, offline if rule.needs_offline else None)
        for rule in rules
    ]
    n, m = similarities.shape
    mask = Positives.read(positives, n, m, similarities.device).i2t.mask()
    cosine, overlap, found = {}, {}, []
    for direction in ("i2t", "t2i"):
        a, b = (_shares(getattr(weights, direction)) for weights in weighed)
        norms = (a.norm() * b.norm()).clamp(min=torch.finfo(a.dtype).tiny)
        cosine[direction] = float((a * b).sum() / norms)
        agree = torch.minimum(a.abs(), b.abs()) * (a * b > 0)
        overlap[direction] = float(agree.sum())
        gap = (b - a).abs().flatten()
        for place in gap.topk(min(top, gap.numel())).indices.tolist():
            i, j = divmod(place, m)
            values = (float(x[i, j]) for x in (similarities, a, b))
            found.append(PairDifference(direction, i, j, bool(mask[i, j]), *values))
    found.sort(key=lambda pair: -abs(pair.difference))
    return WeightComparison(str(rules[0]), str(rules[1]), cosine, overlap, tuple(found[:top]))


def _shares(W: Tensor) -> Tensor:
    W = widened(W)
    return W / W.abs().sum().clamp(min=torch.finfo(W.dtype).tiny)
