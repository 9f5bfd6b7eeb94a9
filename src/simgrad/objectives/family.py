"""A family of objectives: its formula stands once, elementwise, and everything else is derived.

A query needs little of its negatives: a softmax its normaliser, a hinge the number of open
triplets, GOAL the hardest one. A family says

    known(pairs)           what a query knows of its positives before it has seen a negative
    terms(s, *known)       of a negative's similarity: what is summed up over a query's negatives,
                           each in the way that `totals` names: sum, count, logsumexp or max
    judge(totals, pairs)   the value, the weights on positives, and what `push` is given
    push(s, *given)        the weight on a negative

Where that weight is one of the terms, times a factor that `judge` finds for each query, `pushing`
names the term: then `push` is derived, and no part of the formula is worked out twice.

`terms` and `push` are elementwise: `s` is any part of the similarities, in any shape; the others
broadcast against it. What is no negative has s = -inf, where terms must add nothing to their total
and push must be 0 (`check_form` looks when its name is first used). A family with a bias
(`affine`) also returns `Verdict.pushed`, the sum of `push` over a query's negatives: the bias's
gradient is the sum of all weights. From these the frame makes the rule on a whole matrix,
blocks that serve both directions at once, the ring of several processes, and, by printing `terms`
and `push`, fused GPU kernels.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.base import Objective
from simgrad.objectives.engine.forms import KINDS, RuleResult, Vectors, Verdict
from simgrad.objectives.engine.tensors import add_at, rows_at
from simgrad.objectives.engine.totals import NEUTRAL, beside, reduce, reduce_terms
from simgrad.objectives.pairs import Pairs

__all__ = ["Family", "Vectors", "Verdict"]


class Family(Objective):
    """Base of the objectives that are written elementwise.

    Examples:
        >>> from dataclasses import dataclass
        >>> @simgrad.objectives.objectives.declare("soft", paper="your own", description="...")
        ... @dataclass(eq=False, repr=False)
        ... class Soft(simgrad.objectives.Family):
        ...     totals = ("sum", "sum")  # over a query's negatives: the cost, and the weight
        ...     per_pair = immediate = True
        ...     pushing = 1  # the second of its terms is the weight on a negative
        ...     def known(self, pairs):
        ...         return (pairs.similarity,)
        ...     def terms(self, s, own):
        ...         return torch.nn.functional.softplus(s - own), (s - own).sigmoid()
        ...     def judge(self, totals, pairs):
        ...         return simgrad.objectives.Verdict(pairs.per_query(totals[0]), -totals[1])
        ...
        >>> simgrad.objective("soft").weigh(torch.tensor([[0.5, 0.5], [0.1, 0.9]])).i2t[0]
        tensor([-0.5000,  0.5000])
    """

    totals: ClassVar[tuple[str, ...]] = ()  # the kind of each of the terms
    per_pair: ClassVar[bool] = False  # totals belong to pairs: each sees its query's negatives
    immediate: ClassVar[bool] = False  # push needs no totals: it is given what is `known`
    # The number of the term that is the weight on a negative; unless it is `immediate`, times a
    # factor, and `given` is then what is known, and this factor.
    pushing: ClassVar[int | None] = None
    # A value is a sum over pairs, whichever of the two asks: one direction can stand for both.
    symmetric: ClassVar[bool] = False

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "push" in vars(cls) and "pushing" not in vars(cls):
            cls.pushing = None  # its own `push` replaces the parent's term
        # Where they depend on parameters, they are a property.
        unknown = set(cls.totals) - set(KINDS) if isinstance(cls.totals, tuple) else set()
        if unknown:
            raise InputError(
                f"{cls.__name__}: totals are of the kinds {', '.join(KINDS)}, not {unknown.pop()}."
            )

    def known(self, pairs: Pairs) -> Vectors:
        """What `terms` needs: (pairs,) if `per_pair`, else (queries,)."""
        return ()

    def terms(self, s: Tensor, *known: Tensor) -> Vectors:
        """What is summed up over a query's negatives."""
        raise NotImplementedError

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        """Values and weights on positives. A query without negatives may be given anything."""
        raise NotImplementedError

    def push(self, s: Tensor, *given: Tensor) -> Tensor:
        """The weight on a negative. Not asked for where the verdict is `on_hardest`."""
        if self.pushing is None:
            raise NotImplementedError
        if self.immediate:
            return self.terms(s, *given)[self.pushing]
        *known, factor = given
        return self.terms(s, *known)[self.pushing] * factor

    def elementwise(self) -> "Family | None":
        # A subclass with a rule of its own has pieces that say something else.
        return self if type(self).rule is Family.rule else None

    def rule(self, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult:
        """The pieces in turn, on a whole matrix."""
        negatives = similarities.masked_fill_(positives, -torch.inf)
        expanded = self.per_pair and not pairs.one_each
        lines = rows_at(negatives, pairs.query) if expanded else negatives
        known = self.known(pairs)
        terms = self.terms(lines, *beside(known, 1))
        totals, hardest = reduce(self.totals, terms, 1)
        verdict = self.judge(totals, pairs)
        if verdict.on_hardest is not None:
            assert hardest is not None
            weights = torch.zeros_like(lines)
            weights = _add(weights, pairs.query, pairs.per_pair(hardest), verdict.on_hardest)
        elif self.pushing is None:
            weights = self.push(lines, *beside(known if self.immediate else verdict.given, 1))
        else:
            weights = terms[self.pushing].to(lines.dtype)
            weights = weights if self.immediate else weights * verdict.given[-1][:, None]
        if expanded:
            grade = pairs.grade
            weights = pairs.per_query(weights if grade is None else weights * grade[:, None])
        weights = _add(weights, pairs.query, pairs.candidate, verdict.on_positive)
        return verdict.values, weights, verdict.outside

    @torch.no_grad()
    def copes_with_gaps(self) -> bool:
        """`check_form` has looked at its pieces; a rule for whole rows is tried."""
        return self.elementwise() is not None or super().copes_with_gaps()

    def check_form(self) -> None:
        """Refuse a family that gives weight to what is not there."""
        if self.elementwise() is None:
            return
        first, own = torch.zeros(1, dtype=torch.long), torch.full((1,), 0.5)
        outside = torch.zeros(1, 2) if self.needs_offline else None
        pairs = Pairs(first, first, own, 1, True, own, outside)
        known, nothing = self.known(pairs), torch.tensor([[-torch.inf]])
        totals, _ = reduce_terms(self, nothing, known, 1)
        for kind, total in zip(self.totals, totals, strict=True):
            if float(total) != NEUTRAL[kind]:
                raise InputError(
                    f"{self}: at s = -inf, which stands for what is no negative, a term adds "
                    f"{float(total)} to its {kind}; it must add nothing."
                )
        totals, _ = reduce_terms(self, torch.tensor([[0.25]]), known, 1)
        verdict = self.judge(totals, pairs)
        if verdict.on_hardest is None:
            given = known if self.immediate else verdict.given
            weight = float(self.push(nothing, *beside(given, 1)))
            if weight != 0:
                raise InputError(
                    f"{self}: at s = -inf, which stands for what is no negative, push is {weight}; "
                    "it must be 0."
                )


def _add(matrix: Tensor, row: Tensor, column: Tensor, numbers: Tensor) -> Tensor:
    """To a matrix, in place where it lies in one piece."""
    matrix = matrix.contiguous()
    if not matrix.is_floating_point():  # a push that is a condition
        matrix = matrix.to(numbers.dtype)
    add_at(matrix.view(-1), row * matrix.shape[1] + column, numbers.to(matrix.dtype))
    return matrix
