"""Objectives whose rule is written in pieces, so that a batch can be streamed through them.

A rule needs whole rows. Most need little of them: a softmax its normaliser, a hinge the number of
open triplets, GOAL the hardest negative. Such an objective says

    before(batch)           what a query knows of its positives before it has seen a negative
    summarise(negatives)    what matters of a query's negatives, from any part of them
    merge(parts)            the same of all parts
    judge(summary, batch)   the value, and the weights on positives
    spread(negatives, ...)  the weights on negatives

and gets its `rule` from here; where all of a query's candidates are there at once, `in_one` may be
shorter than the pieces. The frame can then make each block of similarities once for both
directions: a block's rows and its columns are parts of the summaries of either. Judged are all
queries of both directions together.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.base import Objective, RuleResult
from simgrad.objectives.batch import Batch, Sparse

Summary = tuple[Tensor, ...]  # each (queries,)
_PIECES = frozenset({"before", "summarise", "judge", "spread"})
_IN_KERNELS = frozenset({"summarise", "merge", "spread"})


class Verdict(NamedTuple):
    """What one direction comes to, once the summary of all its negatives is known."""

    values: Tensor  # (queries,)
    on_positive: Tensor  # (pairs,) weights
    given: Summary = ()  # what `spread` needs to know of every query
    negative: Tensor | None = None  # (pairs,) the one negative that gets weight, where it is one
    on_negative: Tensor | None = None  # (pairs,) its weight
    outside: Tensor | None = None  # (pairs, 2)
    pushed: Tensor | None = None  # (queries,) sum of the weights on negatives; a bias needs it


class Streamed(Objective):
    """Base of the objectives that are written in pieces."""

    reads_mask = False
    per_pair: ClassVar[bool] = False  # summaries belong to pairs: each sees its query's negatives
    symmetric: ClassVar[bool] = False  # both directions treat a pair alike
    tile: ClassVar[str | None] = None  # the name of its fused kernels, where there are some

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        # A subclass with a piece of its own: the shorter way that it inherits leaves that out.
        if "in_one" not in vars(cls) and not _PIECES.isdisjoint(vars(cls)):
            cls.in_one = Streamed.in_one  # type: ignore[method-assign]
        # So do the kernels, if it sees negatives otherwise.
        if "tile" not in vars(cls) and not _IN_KERNELS.isdisjoint(vars(cls)):
            cls.tile = None

    def before(self, batch: Batch, rows: int) -> Summary:
        """What `summarise` needs to know of every query; known from its positives alone."""
        return ()

    def summarise(
        self, negatives: Tensor, before: Summary, first: int = 0
    ) -> tuple[Summary, Tensor | None]:
        """(rows, candidates) -> the summary of these candidates, of which 0 is number `first`.

        Weights too, where they do not depend on the summary. Entries that are no negatives are
        -inf. `negatives` must be left as they are.
        """
        raise NotImplementedError

    def merge(self, parts: Summary) -> Summary:
        """Summaries of several parts of the candidates, each (parts, queries) -> of all."""
        return tuple(part.sum(0) for part in parts)

    def judge(self, summary: Summary, batch: Batch) -> Verdict:
        """Values and weights on positives. A query without negatives may be given anything."""
        raise NotImplementedError

    def spread(self, negatives: Tensor, given: Summary) -> Tensor:
        """Weights (rows, candidates) on negatives; 0 where they are -inf."""
        raise NotImplementedError

    def in_one(self, similarities: Tensor, batch: Batch) -> "Verdict | tuple[Tensor, Tensor]":
        """All candidates of these queries: the pieces in turn, unless there is a shorter way.

        Values and weights, the positives' included; or a verdict that names the only negative.
        `similarities` are used up.
        """
        negatives = batch.fill(similarities, -torch.inf)
        summary, weights = self.summarise(negatives, self.before(batch, negatives.shape[0]))
        verdict = self.judge(summary, batch)
        if verdict.negative is not None:
            return verdict
        if weights is None:
            weights = self.spread(negatives, verdict.given)
        return verdict.values, batch.fill(weights, verdict.on_positive)

    def constants(self) -> tuple[float, bool]:
        """What the fused kernels need to know of the parameters."""
        return 0.0, False

    def stream(self) -> "Streamed | None":
        # A subclass with a rule of its own has pieces that say something else.
        return self if type(self).rule is Streamed.rule else None

    def rule(self, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
        if self.per_pair and not batch.one_each:
            return self.rule_of_several(similarities, batch)
        return self._answer(similarities, batch)

    def rule_of_several(self, similarities: Tensor, batch: Batch) -> RuleResult:
        """Queries with several positives, where summaries belong to pairs: a row for each."""
        rows, pairs = len(similarities), torch.arange(len(batch.query), device=batch.query.device)
        negatives = batch.fill(similarities, -torch.inf)[batch.query]
        each = Batch(pairs, batch.candidate, True, batch.similarity, batch.whole, batch.outside)
        values, weights, *outside = self._answer(negatives, each)
        assert isinstance(weights, Tensor)
        result = batch.per_query(values, rows), batch.per_query(weights, rows)
        return (*result, *outside)  # type: ignore[return-value]  # of either length

    def _answer(self, similarities: Tensor, batch: Batch) -> RuleResult:
        verdict = self.in_one(similarities, batch)
        if not isinstance(verdict, Verdict):
            return verdict
        assert verdict.negative is not None
        assert verdict.on_negative is not None
        sparse = Sparse(
            torch.cat([batch.query, batch.query]),
            torch.cat([batch.candidate, verdict.negative]),
            torch.cat([verdict.on_positive, verdict.on_negative]),
        )
        if verdict.outside is None:
            return verdict.values, sparse
        return verdict.values, sparse, verdict.outside


def columns(*given: Tensor) -> list[Tensor]:
    """(queries,) -> (queries, 1): beside a row of candidates."""
    return [x[:, None] for x in given]
