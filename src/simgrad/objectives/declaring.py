"""An objective of your own is one function of (similarities, positives, pairs).

It returns its values and their weights: `declare` has an example, docs/own.md two.

Rows are queries, one direction at a time. `positives` is the mask of positive pairs; `pairs` lists
them with their similarities (`query`, `candidate`, `similarity`). Where `similarities` is -inf,
there is nothing: an ignored pair, or a place of a batch that is not filled. A rule gives it no
weight and no share in its values; -inf times 0 is NaN, so sum positives with `pairs.per_query`.

`values` (queries,) are summed over queries and both directions, or, declared with `mean=True`, half
the sum of the two directions' means. `weights` (queries, candidates) are their derivative. A rule
may return its values alone: then the weights come from autograd, which takes longer. Further
parameters with defaults become parameters of the spec: `mine(power=3)`. The objective is then
trained, counted, drawn, blocked and tested like any other.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.spec import Range, setting
from simgrad.objectives.base import Objective, objectives
from simgrad.objectives.engine.forms import RuleResult
from simgrad.objectives.pairs import Pairs

OwnRule = Callable[..., "RuleResult | Tensor"]


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
            if parameter.default is parameter.empty:
                raise InputError(
                    f"the rule '{name}': parameter '{parameter.name}' needs a default."
                )
            where = ranges.pop(parameter.name, None)
            made = setting(parameter.default, "", search=where)
            fields.append((parameter.name, type(parameter.default), made))
        if ranges:
            raise InputError(
                f"the rule '{name}' has no parameter '{next(iter(ranges))}' to search."
            )
        names = [f[0] for f in fields]
        alone: list[bool] = []  # whether it returns its values alone, once that is known

        def apply(self: Any, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult:
            chosen = {n: getattr(self, n) for n in names}
            if not alone:
                found = rule(similarities.clone(), positives, pairs, **chosen)
                alone.append(isinstance(found, Tensor))
                if alone[0]:
                    warnings.warn(
                        f"{name} returns only values: its weights come from autograd.",
                        stacklevel=2,
                    )
            if alone[0]:
                return _derived(rule, similarities, positives, pairs, chosen)
            found = rule(similarities, positives, pairs, **chosen)
            if isinstance(found, Tensor) or len(found) not in (2, 3):
                raise InputError(f"the rule '{name}' must return (values, weights), or values.")
            return found

        namespace = {"rule": apply, "mean": mean, "__doc__": rule.__doc__ or description}
        cls = dataclasses.make_dataclass(
            rule.__name__, fields, bases=(Objective,), namespace=namespace, eq=False, repr=False
        )
        cls.__module__ = rule.__module__
        return objectives.declare(name, paper=paper, description=description)(cls)

    return make


def _derived(
    rule: OwnRule, similarities: Tensor, positives: Tensor, pairs: Pairs, chosen: dict[str, Any]
) -> RuleResult:
    """Values, and their derivative by autograd."""
    absent = similarities == -torch.inf  # has no derivative
    with torch.enable_grad():
        S = similarities.detach().requires_grad_()
        own = dataclasses.replace(pairs, similarity=S[pairs.query, pairs.candidate])
        # The rule may overwrite what it is given, but not what it is derived by.
        values = rule(S.clone(), positives, own, **chosen)
        assert isinstance(values, Tensor)
        reached = values.requires_grad
        weights = torch.autograd.grad(values.sum(), S)[0] if reached else torch.zeros_like(S)
    return values.detach(), weights.masked_fill(absent, 0)
