"""Truth of any pattern: several true images per caption, graded relevance, some queries only.

One direction at a time; rows are queries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from simgrad.core.errors import InputError
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.metrics import summary
from simgrad.evaluation.ranks import Integers, Positions, places
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.rivals import count_rows
from simgrad.evaluation.scores import Scores

NEVER = 1 << 60  # the place of a true item that is not among the candidates


@dataclass(frozen=True)
class Truth:
    """Which candidates are true of which queries, and how much each is worth.

    Examples:
        >>> import numpy as np
        >>> truth = simgrad.evaluation.Truth.of_mask(np.array([[True, False], [True, True]]))
        >>> truth.query.tolist(), truth.candidate.tolist()
        ([0, 1, 1], [0, 0, 1])
    """

    query: Integers  # (pairs,) rows
    candidate: Integers  # (pairs,) columns; -1: true, but not among the candidates
    gain: Floats  # (pairs,) above 0

    @staticmethod
    def of(query: Integers, candidate: Integers, gain: Floats | None = None) -> "Truth":
        """From pairs; of a pair given twice the larger gain counts."""
        gains = np.ones(len(query)) if gain is None else np.asarray(gain, dtype=np.float64)
        if not len(query) == len(candidate) == len(gains):
            raise InputError("truth needs as many queries as candidates and gains.")
        keep = gains > 0
        query, candidate, gains = query[keep], candidate[keep], gains[keep]
        order = np.lexsort((-gains, candidate, query))
        query, candidate, gains = query[order], candidate[order], gains[order]
        new = np.ones(len(query), dtype=bool)
        same = (query[1:] == query[:-1]) & (candidate[1:] == candidate[:-1])
        new[1:] = ~same | (candidate[1:] < 0)
        return Truth(query[new], candidate[new], gains[new])

    @staticmethod
    def of_mask(mask: npt.NDArray[np.bool_]) -> "Truth":
        """From a (queries, candidates) matrix."""
        query, candidate = np.nonzero(mask)
        return Truth.of(query, candidate)

    @staticmethod
    def of_lists(
        lists: Mapping[int, Iterable[int]], rows: Mapping[int, int], columns: Mapping[int, int]
    ) -> "Truth":
        """From {query id: [candidate ids]}; `rows` and `columns` find an id's place."""
        pairs = [
            (rows[q], columns.get(c, -1)) for q, candidates in lists.items() for c in candidates
        ]
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return Truth.of(table[:, 0], table[:, 1])

    def joined(self, other: "Truth") -> "Truth":
        """True by either."""
        return Truth.of(
            np.concatenate([self.query, other.query]),
            np.concatenate([self.candidate, other.candidate]),
            np.concatenate([self.gain, other.gain]),
        )

    def transposed(self) -> "Truth":
        """The same pairs seen from the candidates; all of them must be there."""
        return Truth.of(self.candidate, self.query, self.gain)


def _place_truth(scores: Scores, truth: Truth) -> tuple[Integers, Integers]:
    """(query numbered without gaps, place) of each true pair."""
    if not len(truth.query):
        raise InputError("there is no true pair to look for.")
    queries, query = np.unique(truth.query, return_inverse=True)
    if queries[-1] >= scores.num_images or truth.candidate.max() >= scores.num_captions:
        raise InputError(
            f"truth names query {queries[-1]} and candidate {truth.candidate.max()}, but there are "
            f"{scores.num_images} and {scores.num_captions}."
        )
    part = scores
    if len(queries) < scores.num_images:
        part = scores.select(torch.from_numpy(queries), torch.arange(scores.num_captions))
    query = query.astype(np.int64)
    there = truth.candidate >= 0
    pairs = (torch.from_numpy(query[there]), torch.from_numpy(truth.candidate[there]))
    own, rivals = (result.cpu().numpy() for result in count_rows(part, *pairs))
    place = np.full(len(query), NEVER)
    place[there] = places(query[there], own, rivals, truth.gain[there])
    return query, place


def truth_positions(scores: Scores, truth: Truth) -> Positions:
    """Where the true items stand, for the queries that have any."""
    return Positions.of(*_place_truth(scores, truth))


def truth_metrics(
    scores: Scores, truth: Truth, recalls: Iterable[int] = HEADLINE_RECALLS
) -> dict[str, float]:
    """The metrics of one direction (names without it) under any truth.

    Examples:
        >>> from simgrad.evaluation.scores import Matrix
        >>> truth = simgrad.evaluation.Truth.of_mask(torch.eye(3, dtype=torch.bool).numpy())
        >>> simgrad.evaluation.truth_metrics(Matrix(torch.eye(3)), truth)["r1"]
        100.0
    """
    return summary(truth_positions(scores, truth), recalls)


def ndcg(
    scores: Scores, truth: Truth, depth: int | None = None, *, exponential: bool = False
) -> float:
    """Mean normalised discounted cumulative gain over the queries with any gain, 0 to 1.

    Each item found at place p is worth gain / log2(1 + p), over the best order possible;
    `exponential` takes 2^gain - 1 for the gain, `depth` looks at the first places only.

    Examples:
        >>> from simgrad.evaluation.scores import Matrix
        >>> truth = simgrad.evaluation.Truth.of_mask(torch.eye(3, dtype=torch.bool).numpy())
        >>> simgrad.evaluation.ndcg(Matrix(torch.eye(3)), truth)
        1.0
    """
    query, place = _place_truth(scores, truth)
    gain = np.exp2(truth.gain) - 1 if exponential else truth.gain
    order = np.lexsort((-gain, query))
    begin = np.concatenate([[0], np.cumsum(np.bincount(query))])[:-1]
    ideal_place = np.empty_like(place)
    ideal_place[order] = np.arange(len(place)) - begin[query[order]] + 1

    def total(at: Integers) -> Floats:
        worth = gain / np.log2(1.0 + at) * (at <= (depth or np.inf))
        return np.bincount(query, weights=worth).astype(np.float64)

    return float(np.mean(total(place) / total(ideal_place)))
