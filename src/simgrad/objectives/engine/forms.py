"""What the engine asks of an objective: a rule on whole rows, or its pieces, elementwise."""

from typing import NamedTuple, Protocol

from torch import Tensor

from simgrad.objectives.pairs import Pairs

Vectors = tuple[Tensor, ...]  # each (lines,): a number for every query, or for every pair
RuleResult = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor | None]
KINDS = ("sum", "count", "logsumexp", "max")  # how terms are summed up over a query's negatives


class Verdict(NamedTuple):
    """What `judge` of a family returns: values, weights on positives, and what `push` needs.

    Examples:
        >>> own, push = torch.tensor([0.5, 0.25]), torch.tensor([0.1, 0.2])
        >>> simgrad.objectives.Verdict(values=1 - own, on_positive=-push).values
        tensor([0.5000, 0.7500])
    """

    values: Tensor  # (queries,)
    on_positive: Tensor  # (pairs,) weights
    given: Vectors = ()  # what `push` needs to know of every line
    on_hardest: Tensor | None = None  # (pairs,) weight of the query's hardest negative
    outside: Tensor | None = None  # (pairs, 2)
    pushed: Tensor | None = None  # (lines,) sum of the weights on negatives; a bias needs it


class Elementwise(Protocol):
    """A rule in pieces; see `family.py`, where they are explained."""

    def settings(self) -> tuple[object, ...]: ...
    @property
    def totals(self) -> tuple[str, ...]: ...
    @property
    def per_pair(self) -> bool: ...
    @property
    def immediate(self) -> bool: ...
    @property
    def pushing(self) -> int | None: ...
    @property
    def symmetric(self) -> bool: ...
    def known(self, pairs: Pairs) -> Vectors: ...
    def terms(self, s: Tensor, *known: Tensor) -> Vectors: ...
    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict: ...
    def push(self, s: Tensor, *given: Tensor) -> Tensor: ...


class Rule(Protocol):
    """An objective, as the engine sees it."""

    replays: bool
    handle: str

    @property
    def name(self) -> str: ...
    @property
    def mean(self) -> bool: ...
    @property
    def separable(self) -> bool: ...
    @property
    def needs_offline(self) -> bool: ...
    @property
    def pairwise(self) -> bool: ...
    @property
    def graded(self) -> bool: ...
    @property
    def direction(self) -> str: ...
    def rule(self, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult: ...
    def affine(self) -> tuple[Tensor | None, Tensor | None]: ...
    def elementwise(self) -> Elementwise | None: ...
    def copes_with_gaps(self) -> bool: ...
    def settings(self) -> tuple[object, ...]: ...
