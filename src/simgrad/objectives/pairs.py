"""What a rule sees of a batch beside its similarities: the positive pairs of its queries."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """The positive pairs of the queries a rule sees, sorted by query."""

    query: Tensor  # (pairs,) row in the similarities
    candidate: Tensor  # (pairs,)
    similarity: Tensor  # (pairs,)
    queries: int
    one_each: bool  # pair k belongs to query k
    of_batch: Tensor  # similarities of all positive pairs of the batch, each once
    outside: Tensor | None = None  # (pairs, 2) similarities with what was drawn from elsewhere

    @cached_property
    def sorted_of_batch(self) -> Tensor:
        return self.of_batch.sort().values

    def per_pair(self, of_queries: Tensor) -> Tensor:
        """(queries, ...) -> (pairs, ...): each pair sees its query's."""
        return of_queries if self.one_each else of_queries[self.query]

    def per_query(self, of_pairs: Tensor, queries: int | None = None) -> Tensor:
        """(pairs, ...) -> (queries, ...): the sum over the pairs of a query."""
        if self.one_each:
            return of_pairs
        rows = self.queries if queries is None else queries
        return of_pairs.new_zeros((rows, *of_pairs.shape[1:])).index_add_(0, self.query, of_pairs)

    @cached_property
    def share(self) -> Tensor:
        """(pairs,) one over the number of the query's positives."""
        ones = torch.ones_like(self.similarity)
        return ones / self.per_pair(self.per_query(ones))

    @cached_property
    def together(self) -> tuple[Tensor, Tensor]:
        """All (pair i, other pair j) of the same query: SmoothAP ranks positives too."""
        nothing = self.query.new_zeros(0)
        if self.one_each:
            return nothing, nothing
        first = torch.searchsorted(self.query.contiguous(), self.query.contiguous())
        last = torch.searchsorted(self.query.contiguous(), self.query.contiguous(), right=True)
        count = last - first
        one = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
        start = torch.repeat_interleave(first - (count.cumsum(0) - count), count)
        other = torch.arange(len(one), device=one.device) + start
        different = one != other
        return one[different], other[different]
