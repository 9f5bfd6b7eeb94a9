"""What a rule sees of a batch beside its similarities: the positive pairs of its queries."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives.engine.tensors import add_rows, rows_at


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
        return add_rows(of_pairs.new_zeros((rows, *of_pairs.shape[1:])), self.query, of_pairs)

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
