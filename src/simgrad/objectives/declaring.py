"""An objective of your own is one function of (similarities, positives, pairs).

It returns its values and their weights: `declare` has an example, docs/own.md two.

Rows are queries, one direction at a time. `positives` is the mask of positive pairs; `pairs` lists
them with their similarities (`query`, `candidate`, `similarity`). Where `similarities` is -inf,
there is nothing: an ignored pair, or a place of a batch that is not filled. A rule gives it no
weight and no share in its values; -inf times 0 is NaN, so sum positives with `pairs.per_query`.

`values` (queries,) are summed over queries and both directions, or, declared with `mean=True`, half
the sum of the two directions' means. `weights` (queries, candidates) are their derivative. A rule
may return its values alone: then the weights come from autograd, which takes longer. Further
parameters with defaults become parameters of the spec: `mine(power=3)`; a default may be a
`setting(...)` with limits, a meaning and where a study searches. The objective is then trained,
counted, drawn, blocked and tested like any other. What a rule returns is looked at whenever it is
asked; when its name is first used, on a small batch that is not square, where the sum over the
wrong axis and a value without a gradient show.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.spec import Range, setting
from simgrad.core.text import place_of
from simgrad.objectives.base import Objective, objectives
from simgrad.objectives.engine.forms import RuleResult
from simgrad.objectives.engine.rules import weigh_direction
from simgrad.objectives.pairs import Pairs
from simgrad.objectives.positives import Positives

OwnRule = Callable[..., "RuleResult | Tensor"]


class WrongRule(InputError):
    """What a rule of one's own returns cannot be worked with."""


def declare(
    name: str,
    *,
    description: str = "",
    paper: str = "your own",
    mean: bool = False,
    search: Mapping[str, Range] | None = None,
) -> Callable[[OwnRule], type[Objective]]:
    """Declare a rule `(similarities, positives, pairs, **parameters) -> (values, weights)`.

    `search` says where a tuned study looks for a parameter: `{"power": Range(1, 4)}`.

    Examples:
        >>> @simgrad.objectives.declare("example-hinge", description="a margin for every negative")
        ... def hinge(similarities, positives, pairs, margin: float = 0.2):
        ...     count = positives.sum(1)
        ...     own = pairs.per_query(pairs.similarity) / count
        ...     cost = (margin + similarities - own[:, None]).clamp(min=0).masked_fill(positives, 0)
        ...     push = (cost > 0).to(cost)
        ...     return cost.sum(1), push - (push.sum(1) / count)[:, None] * positives
        ...
        >>> S = torch.tensor([[0.9, 0.8], [0.1, 0.7]])
        >>> simgrad.objective("example-hinge").weigh(S).i2t.tolist()
        [[-1.0, 1.0], [0.0, 0.0]]
    """
    if not isinstance(name, str):
        what = getattr(name, "__name__", repr(name))
        raise InputError(f'{what:.80} is declared without a name: write @declare("name").')
    ranges = dict(search or {})

    def make(rule: OwnRule) -> type[Objective]:
        parameters = list(inspect.signature(rule).parameters.values())
        if len(parameters) < 3:
            raise InputError(
                f"the rule '{name}' must take (similarities, positives, pairs), not "
                f"{inspect.signature(rule)}."
            )
        fields: list[Any] = []
        for parameter in parameters[3:]:
            default, where = parameter.default, ranges.pop(parameter.name, None)
            if default is parameter.empty:
                raise InputError(
                    f"the rule '{name}': parameter '{parameter.name}' needs a default."
                )
            written = isinstance(default, dataclasses.Field)  # tau: float = setting(0.1, above=0)
            if written and where is not None:
                raise InputError(
                    f"the rule '{name}': '{parameter.name}' has a `setting`: give search= there."
                )
            made = default if written else setting(default, "", search=where)
            fields.append((parameter.name, type(made.default), made))
        if ranges:
            raise InputError(
                f"the rule '{name}' has no parameter '{next(iter(ranges))}' to search."
            )
        names = [f[0] for f in fields]
        who = f"the rule '{name}' ({place_of(rule)})"
        alone: list[bool] = []  # whether it returns its values alone, once that is known
        reached: set[bool] = set()  # then, whether these followed from the similarities

        def apply(self: Any, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult:
            chosen = {n: getattr(self, n) for n in names}
            shape = tuple(similarities.shape)
            if not alone:
                found = _checked(rule(similarities.clone(), positives, pairs, **chosen), shape, who)
                alone.append(len(found) == 1)
            if alone[0]:
                values, weights, follows = _derived(
                    rule, similarities, positives, pairs, chosen, who
                )
                reached.add(follows)
                return values, weights
            given = _checked(rule(similarities, positives, pairs, **chosen), shape, who)
            if len(given) == 1:
                raise WrongRule(f"{who} returned values alone here, and with weights before.")
            return given

        namespace = {
            "rule": apply,
            "mean": mean,
            "own": who,
            "check_form": lambda self: _try(self, who, reached),
            "__doc__": rule.__doc__ or description,
        }
        cls = dataclasses.make_dataclass(
            rule.__name__, fields, bases=(Objective,), namespace=namespace, eq=False, repr=False
        )
        cls.__module__ = rule.__module__
        return objectives.declare(name, paper=paper, description=description)(cls)

    return make


def _derived(
    rule: OwnRule,
    similarities: Tensor,
    positives: Tensor,
    pairs: Pairs,
    chosen: dict[str, Any],
    who: str,
) -> tuple[Tensor, Tensor, bool]:
    """Values, their derivative by autograd, and whether there is one."""
    absent = similarities == -torch.inf  # has no derivative
    with torch.enable_grad():
        S = similarities.detach().requires_grad_()
        own = dataclasses.replace(pairs, similarity=S[pairs.query, pairs.candidate])
        # The rule may overwrite what it is given, but not what it is derived by.
        values, *_ = _checked(rule(S.clone(), positives, own, **chosen), tuple(S.shape), who)
        assert values is not None
        reached = values.requires_grad
        weights = torch.autograd.grad(values.sum(), S)[0] if reached else torch.zeros_like(S)
    return values.detach(), weights.masked_fill(absent, 0), reached


def _checked(found: Any, shape: tuple[int, ...], who: str) -> RuleResult:
    """What a rule returned: values, and weights where it gave them, of the right shapes."""

    def refuse(what: Any, wanted: str) -> NoReturn:
        told: object = type(what).__name__
        if isinstance(what, Tensor):
            told = tuple(what.shape)
        elif what is None or isinstance(what, (int, float)):
            told = what
        raise WrongRule(f"{who} returned {told}; {wanted} is needed.")

    given = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    values, weights = (*given, None)[:2]
    one_each = f"one value for each of {shape[0]} queries"
    if len(given) > 3:
        refuse(found, "(values, weights), or values,")
    if len(given) > 1 and [getattr(x, "shape", None) for x in given[:2]] == [shape, shape[:1]]:
        raise WrongRule(f"{who} returned weights first; (values, weights) is needed.")
    if not isinstance(values, Tensor) or values.shape != shape[:1]:
        refuse(values, one_each)
    if len(given) > 1 and (not isinstance(weights, Tensor) or weights.shape != shape):
        refuse(weights, f"as its weights, {shape}, queries x candidates,")
    return values, *given[1:]  # type: ignore[return-value]


def _try(made: Objective, who: str, reached: set[bool]) -> None:
    """Ask a rule for what it makes of a batch that is not square; can it be followed at all?"""
    pairs = Positives.of_captions(torch.arange(24, device="cpu") // 2, 12)
    for S in _similarities():
        for rows, side in ((S, pairs.i2t), (S.t(), pairs.t2i)):
            try:
                # The caller's random numbers stay what they are, also where the rule draws some.
                with torch.inference_mode(False), torch.random.fork_rng([]):
                    weigh_direction(made, rows, side)
            except WrongRule:
                raise
            except Exception:  # it may need more than this: then its use shows what is wrong
                return
    if reached == {False}:
        raise WrongRule(
            "no query has a gradient: the value does not depend on the similarities (comparison, "
            f"detach, numpy?). See {who}."
        )


def _similarities() -> Iterator[Tensor]:
    """12 images with two captions each: as after some training, and with all positives last."""
    noise = torch.rand(12, 24, generator=torch.Generator().manual_seed(0), device="cpu")
    own = torch.eye(12, device="cpu").repeat_interleave(2, 1)
    yield 0.6 * noise - 0.2 + 0.4 * own
    yield 0.6 * noise - 0.8 * own
