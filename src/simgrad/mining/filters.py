"""Which of a query's candidates may be its negatives: sentence-transformers' filters, same meaning.

A query with several positives is measured by its weakest one, which is the careful choice.
`range_max` cuts the list before the filters, `range_min` skips the hardest that pass them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.core.errors import InputError


@dataclass(frozen=True)
class Filters:
    """What a negative must satisfy; `own` is the similarity of the query's own (weakest) pair."""

    absolute_margin: float | None = None  # at most own - absolute_margin
    relative_margin: float | None = None  # at most own - |own| * relative_margin, e.g. 0.05
    min_score: float | None = None  # at least this
    max_score: float | None = None  # at most this
    range_min: int = 0  # skip this many of the hardest that pass
    range_max: int | None = None  # consider only this many of the hardest

    def __post_init__(self) -> None:
        if self.range_min < 0:
            raise InputError(f"range_min is {self.range_min}; it must be at least 0.")
        if self.range_max is not None and self.range_max <= self.range_min:
            raise InputError(
                f"range_max is {self.range_max}; it must be greater than range_min "
                f"({self.range_min})."
            )
        kinds = {
            "absolute_margin": "similarities lie between -1 and 1",
            "relative_margin": "it is a share of the own pair's similarity, e.g. 0.05 for 5%",
        }
        for name, why in kinds.items():
            margin = getattr(self, name)
            if margin is not None and not -2 <= margin <= 2:
                raise InputError(f"{name} is {margin}; {why}.")

    def ceilings(self, own: Tensor) -> dict[str, Tensor]:
        """By filter: the highest score that a negative of each query may have."""
        found = {}
        if self.absolute_margin is not None:
            found["absolute_margin"] = own - self.absolute_margin
        if self.relative_margin is not None:
            found["relative_margin"] = own - own.abs() * self.relative_margin
        if self.max_score is not None:
            found["max_score"] = torch.full_like(own, self.max_score)
        return found

    def ceiling(self, own: Tensor) -> Tensor | None:
        """The lowest of them; None: any score will do."""
        found = list(self.ceilings(own).values())
        return torch.stack(found).amin(0) if found else None

    def told(self) -> dict[str, float | int]:
        """The filters that are set."""
        chosen = {name: value for name, value in vars(self).items() if value is not None}
        return {k: v for k, v in chosen.items() if (k, v) != ("range_min", 0)}

    def applied(self, scores: Tensor, where: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Sorted candidates (queries, k) without those that a filter refuses: -inf at the end."""
        refused = torch.zeros_like(scores, dtype=torch.bool)
        ceiling = self.ceiling(own)
        if ceiling is not None:
            refused |= scores > ceiling[:, None]
        if self.min_score is not None:
            refused |= scores < self.min_score
        scores, order = scores.masked_fill(refused, -torch.inf).sort(1, descending=True)
        return scores[:, self.range_min :], where.gather(1, order)[:, self.range_min :]
