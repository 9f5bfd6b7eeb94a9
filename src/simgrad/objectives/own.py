"""An objective of your own is one function.

    @simgrad.objectives.declare("mine", description="pushes negatives by their square")
    def mine(similarities, positives, batch, power: float = 2.0):
        ...
        return values, weights

Its parameters with defaults become the parameters of the spec `mine(power=3)`. It is then trained,
counted, drawn, blocked and tested like any other.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.objectives.base import Objective, RuleResult, objectives
from simgrad.objectives.batch import Batch


def declare(
    name: str, *, description: str = "", paper: str = "your own", mean: bool = False
) -> Callable[[Callable[..., RuleResult]], type[Objective]]:
    """Declare a rule `(similarities, positives, batch, **parameters) -> (values, weights)`."""

    def make(rule: Callable[..., RuleResult]) -> type[Objective]:
        parameters = list(inspect.signature(rule).parameters.values())
        if len(parameters) < 3:
            raise InputError(
                f"the rule '{name}' must take (similarities, positives, batch), not "
                f"{inspect.signature(rule)}."
            )
        fields: list[Any] = []
        for parameter in parameters[3:]:
            if parameter.default is parameter.empty:
                raise InputError(
                    f"the rule '{name}': parameter '{parameter.name}' needs a default."
                )
            fields.append((parameter.name, type(parameter.default), setting(parameter.default, "")))
        names = [f[0] for f in fields]

        def apply(self: Any, similarities: Tensor, positives: Tensor, batch: Batch) -> RuleResult:
            return rule(similarities, positives, batch, **{n: getattr(self, n) for n in names})

        namespace = {"rule": apply, "mean": mean, "__doc__": rule.__doc__ or description}
        cls = dataclasses.make_dataclass(
            rule.__name__, fields, bases=(Objective,), namespace=namespace, eq=False, repr=False
        )
        cls.__module__ = rule.__module__
        return objectives.declare(name, paper=paper, description=description)(cls)

    return make
