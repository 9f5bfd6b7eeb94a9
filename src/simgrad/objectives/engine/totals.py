"""Totals over a query's negatives: from terms, and from parts of the candidates to all of them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.engine.forms import Elementwise, Vectors

# What no candidate at all adds up to.
NEUTRAL = {"sum": 0.0, "count": 0.0, "logsumexp": -torch.inf, "max": -torch.inf}
# Two totals of different candidates as one.
_MERGED: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add, "count": torch.add, "logsumexp": torch.logaddexp, "max": torch.maximum
}  # fmt: skip
# Exponents up to which a sum of 2**24 exponentials, and its inverse, are numbers of float32.
LARGEST_EXPONENT = 64.0


class Reduced(NamedTuple):
    """Totals of some lines over some candidates."""

    totals: Vectors
    where: Tensor | None  # (lines,) which candidate is the largest of the first `max`


@dataclass
class Totals:
    """What has been summed up so far, for every line."""

    kinds: tuple[str, ...]
    values: list[Tensor] = field(default_factory=list)
    where: Tensor | None = None

    def add(self, lines: slice, count: int, found: Reduced, first: int) -> None:
        """Totals of some lines over more candidates, of which number 0 is number `first`."""
        where = found.where if found.where is None or first == 0 else found.where + first
        if not self.values:
            if lines.stop - lines.start == count:
                self.values, self.where = list(found.totals), where
                return
            for kind, total in zip(self.kinds, found.totals, strict=True):
                self.values.append(total.new_full((count,), NEUTRAL[kind]))
            self.where = None if where is None else where.new_zeros(count)
        if self.where is not None and where is not None:
            k = self.kinds.index("max")
            better = found.totals[k] > self.values[k][lines]
            torch.where(better, where, self.where[lines], out=self.where[lines])
        for kind, new, every in zip(self.kinds, found.totals, self.values, strict=True):
            _MERGED[kind](every[lines], new, out=every[lines])

    def with_those_of(self, other: "Totals") -> Vectors:
        """These lines, then those of the other direction."""
        return tuple(map(torch.cat, zip(self.values, other.values, strict=True)))


def reduce_terms(family: Elementwise, s: Tensor, told: Vectors, dim: int) -> Reduced:
    """Totals of similarities along `dim`: 1 where rows are lines, 0 where columns are."""
    return reduce(family.totals, family.terms(s, *beside(told, dim)), dim)


def reduce(
    kinds: tuple[str, ...], terms: Vectors, dim: int, exponentials: "list[Tensor] | None" = None
) -> Reduced:
    """Terms to totals. Their `exponentials` may be given, where all of them are numbers."""
    if not terms[0].shape[dim]:  # a process without a share has no candidates
        return nothing(kinds, terms[0].new_empty(terms[0].shape[1 - dim], dtype=_number(terms)))
    totals, where = [], None
    for k, (kind, term) in enumerate(zip(kinds, terms, strict=True)):
        if kind == "sum":
            totals.append(term.sum(dim))
        elif kind == "count":
            totals.append(term.sum(dim, dtype=_number(terms)))
        elif kind == "max":
            largest, place = _largest(term, dim)
            totals.append(largest)
            where = place if where is None else where
        elif exponentials is not None:
            totals.append(exponentials[k].sum(dim).log_())
        else:
            totals.append(_log_sum_exp(term, dim))
    return Reduced(tuple(totals), where)


def nothing(kinds: tuple[str, ...], like: Tensor) -> Reduced:
    """Totals of lines that have seen no candidate: as many, and of the type, as `like` has."""
    where = torch.zeros_like(like, dtype=torch.long) if "max" in kinds else None
    return Reduced(tuple(torch.full_like(like, NEUTRAL[kind]) for kind in kinds), where)


def _number(terms: Vectors) -> torch.dtype:
    """Counts have the precision of the other totals."""
    return next((t.dtype for t in terms if t.is_floating_point()), torch.float32)


def _largest(term: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    if dim == 0 and not term.is_cuda:  # along rows that lie one after the other it is faster
        term, dim = term.t().contiguous(), 1
    found = term.max(dim)
    return found.values, found.indices


def _log_sum_exp(x: Tensor, dim: int) -> Tensor:
    """-inf for a line of -inf."""
    largest = x.amax(dim, keepdim=True).clamp(min=torch.finfo(x.dtype).min)
    return (x - largest).exp_().sum(dim).log_().add_(largest.squeeze(dim))


def beside(vectors: Vectors, dim: int) -> Vectors:
    """(lines,) as they broadcast against similarities that are summed up along `dim`."""
    return tuple(v[:, None] if dim == 1 else v[None, :] for v in vectors)


def is_bounded(family: Elementwise, told: int, scale: "Tensor | float", biased: bool) -> bool:
    """Whether exponentials of the terms that are summed so are numbers for all similarities."""
    if not isinstance(scale, float) or biased or "logsumexp" not in family.totals:
        return False
    key = type(family), family.settings(), told, scale
    if key not in _bounded:
        if len(_bounded) >= _KEPT:
            _bounded.clear()
        # Rounded vectors may be a little longer; a set without a bound has all of them.
        ends = torch.tensor([-1.01, 1.01]) * scale
        found = family.terms(ends, *(torch.tensor(-torch.inf) for _ in range(told)))
        exponents = [t for kind, t in zip(family.totals, found, strict=True) if kind == "logsumexp"]
        _bounded[key] = all(bool((t.abs() <= LARGEST_EXPONENT).all()) for t in exponents)
    return _bounded[key]


_KEPT = 256  # with other parameters each time they would never end
_bounded: dict[Hashable, bool] = {}
