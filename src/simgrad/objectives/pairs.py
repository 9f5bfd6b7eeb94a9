"""What a rule sees of a batch beside its similarities: positive pairs, and pairs from outside."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.core.errors import InputError
from simgrad.objectives.engine.tensors import (
    add_at,
    check_finite,
    exact_type,
    may_check,
    rows_at,
)
from simgrad.objectives.positives import Positives


@dataclass(frozen=True)
class Pairs:
    """The positive pairs that a rule is given, sorted by query.

    Examples:
        >>> @simgrad.objectives.declare("pull-only", description="pulls, never pushes")
        ... def pull_only(similarities, positives, pairs):
        ...     return pairs.per_query(1 - pairs.similarity), -1.0 * positives
        ...
        >>> simgrad.objective("pull-only").on(torch.tensor([[0.9, 0.8], [0.1, 0.7]]))
        tensor(0.8000)
    """

    query: Tensor  # (pairs,) row in the similarities
    candidate: Tensor  # (pairs,)
    similarity: Tensor  # (pairs,)
    queries: int
    one_each: bool  # pair k belongs to query k
    of_batch: Tensor  # similarities of all positive pairs of the batch, each once
    outside: Tensor | None = None  # (pairs, 2) similarities with what was drawn from elsewhere
    grade: Tensor | None = None  # (pairs,) how much each counts beside the query's others; None: 1

    @cached_property
    def sorted_of_batch(self) -> Tensor:
        return self.of_batch.sort().values

    def per_pair(self, of_queries: Tensor) -> Tensor:
        """(queries, ...) -> (pairs, ...): each pair sees its query's."""
        return of_queries if self.one_each else rows_at(of_queries, self.query)

    def per_query(self, of_pairs: Tensor, queries: int | None = None) -> Tensor:
        """(pairs, ...) -> (queries, ...): the sum over the pairs of a query."""
        if self.one_each:
            return of_pairs
        rows = self.queries if queries is None else queries
        return add_at(of_pairs.new_zeros((rows, *of_pairs.shape[1:])), self.query, of_pairs)

    @cached_property
    def share(self) -> Tensor:
        """(pairs,) one over the number of the query's positives, or, where they are weighted, what
        a pair has of their sum."""
        ones = torch.ones_like(self.similarity)
        return self.graded(ones) / self.per_pair(self.per_query(ones))

    def graded(self, of_pairs: Tensor) -> Tensor:
        """(pairs,) times their grades."""
        return of_pairs if self.grade is None else of_pairs * self.grade

    @cached_property
    def together(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """All (pair i, other pair j) of the same query; and 1 for those that are really there.

        How many there are is known to the host, which neither a CUDA graph nor several batches in
        one call can ask: all pairs are listed there, and most of them do not count.
        """
        count, device = len(self.query), self.query.device
        if self.one_each:
            nothing = self.query.new_zeros(0)
            return nothing, nothing, None
        every = torch.arange(count, device=device)
        if gpu.is_capturing() or torch._C._functorch.is_batchedtensor(self.query):
            one, other = every.repeat_interleave(count), every.repeat(count)
            same = rows_at(self.query, one) == rows_at(self.query, other)
            same = same & (one != other)
            return one, other, same.to(self.similarity.dtype)
        queries = self.query.contiguous()
        first, last = (torch.searchsorted(queries, queries, right=r) for r in (False, True))
        one = every.repeat_interleave(last - first)
        ends = (last - first).cumsum(0)
        other = torch.arange(len(one), device=device) - (ends - last)[one]
        different = one != other
        return one[different], other[different], None


class Offline(NamedTuple):
    """Four similarities per pair from outside the batch (AOQ); pair k is caption k of the batch.

    With I, T the pair, T̂ and Î its mined caption and image, Ĩ the image of T̂, T̃ a caption of Î.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> mined = torch.tensor([0.7, 0.2, 0.3]), torch.tensor([0.6, 0.1, 0.4])  # caption, image
        >>> pairs = torch.tensor([0.2, 0.2, 0.6]), torch.tensor([0.1, 0.1, 0.1])
        >>> offline = simgrad.objectives.Offline(*mined, *pairs)
        >>> simgrad.objective("off-quin").on(S, offline=offline)
        tensor(0.8000)
    """

    caption: Tensor  # S(I, T̂)
    image: Tensor  # S(Î, T)
    pair: Tensor  # S(Î, T̂)
    partner: Tensor  # S(Ĩ, T̃)


def split_offline(
    objective: Any, offline: Offline | None, pairs: Positives, S: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Offline similarities by direction, in its order of pairs: (own anchor, no shared anchor)."""
    if objective.needs_offline != (offline is not None):
        raise InputError(
            f"{objective.name} weighs similarities from outside the batch: give "
            "`offline=simgrad.objectives.Offline(caption, image, pair, partner)`."
            if objective.needs_offline
            else f"{objective.name} takes no offline similarities; off-tri, off-quin and "
            "adap-off-quin do."
        )
    if offline is None:
        return None, None
    count = pairs.count
    for field, similarities in offline._asdict().items():
        if similarities.shape != (count,):
            raise InputError(
                f"offline.{field} has shape {tuple(similarities.shape)}; one similarity for each "
                f"of the {count} pairs is needed."
            )
    # (pairs, 4) in the precision of the similarities that they are compared with.
    values = torch.stack([x.detach() for x in offline], 1).to(exact_type(S))
    if may_check(S) and not torch.isfinite(values.sum()):
        for field, similarities in offline._asdict().items():
            check_finite(similarities.detach()[None], f"offline.{field}", True)
    i2t, t2i = values[:, ::2], values[:, 1::2]
    return pairs.by_image(i2t), t2i


def join_offline(i2t: Tensor | None, t2i: Tensor | None, pairs: Positives) -> Offline | None:
    """The inverse of `split_offline`, for the weights."""
    if i2t is None or t2i is None:
        return None
    i2t = pairs.by_caption(i2t)
    return Offline(i2t[:, 0], t2i[:, 0], i2t[:, 1], t2i[:, 1])
