"""What a rule sees of a batch beside its similarities, and what it may answer."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor


class Sparse(NamedTuple):
    """Weights of which few are not zero: an objective that looks at the hardest negative alone."""

    query: Tensor  # (entries,) row in the block
    candidate: Tensor  # (entries,)
    weight: Tensor  # (entries,)


class Whole:
    """What a rule may need to know of the whole batch while it sees some of its rows."""

    def __init__(self, positive_similarities: Tensor) -> None:
        self.positive_similarities = positive_similarities  # (all pairs,), sorted by query

    @cached_property
    def sorted_positives(self) -> Tensor:
        return self.positive_similarities.sort().values

    @cached_property
    def smallest_positive(self) -> Tensor:
        return self.sorted_positives[0]


@dataclass(frozen=True)
class Batch:
    """The positive pairs of the rows a rule sees, and what lies outside of them."""

    query: Tensor  # (pairs,) row in the block
    candidate: Tensor  # (pairs,)
    one_each: bool  # pair k belongs to row k
    similarity: Tensor  # (pairs,) of each positive pair
    whole: Whole
    outside: Tensor | None = None  # (pairs, 2) offline similarities of this direction
    diagonal: bool = False  # and the pairs are the diagonal of a square, or of two below each other

    def per_pair(self, rows: Tensor) -> Tensor:
        """(rows, ...) -> (pairs, ...): each pair sees its query's row."""
        return rows if self.one_each else rows[self.query]

    def per_query(self, pairs: Tensor, rows: int) -> Tensor:
        """(pairs, ...) -> (rows, ...): sum over the pairs of a query."""
        if self.one_each:
            return pairs
        return pairs.new_zeros((rows, *pairs.shape[1:])).index_add_(0, self.query, pairs)

    def fill(self, matrix: Tensor, value: "Tensor | float") -> Tensor:
        """In place: entries (rows, candidates) of the positive pairs become `value`."""
        if self.diagonal:
            places = _diagonals(matrix)
            if isinstance(value, Tensor):
                places.copy_(value.view(places.shape))
            else:
                places.fill_(value)
            return matrix
        if not isinstance(value, Tensor):
            value = matrix.new_full((), value)  # a kernel, not a copy: a CUDA graph can hold it
        return matrix.index_put_((self.query, self.candidate), value)

    def turn(self, matrix: Tensor) -> Tensor:
        """In place: the sign of the positive pairs' entries (rows, candidates)."""
        if not self.diagonal:
            return self.fill(matrix, -self.pick(matrix))
        _diagonals(matrix).neg_()
        return matrix

    def pick(self, matrix: Tensor) -> Tensor:
        """(rows, candidates) -> (pairs,) the entries of the positive pairs."""
        if self.diagonal:
            return _diagonals(matrix).flatten()
        return matrix[self.query, self.candidate]


def _diagonals(matrix: Tensor) -> Tensor:
    """(squares below each other) -> (squares, rows) their diagonals, in place."""
    size = matrix.shape[1]
    return matrix.view(-1, size, size).diagonal(dim1=1, dim2=2)
