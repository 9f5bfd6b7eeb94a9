"""Where a tuned study looks: `tune` in a study file, and the space of each of its rows.

    tune:
      trials: 16                                    # for every row alike
      space:
        lr: {low: 1e-4, high: 2e-3}                 # a field of the recipe, by factors
        objective.tau: {low: 0.01, high: 0.3}       # a parameter of the rows' objectives
        model.dimension: [512, 1024]                # choices
        clip: null                                  # not searched

Nobody has to name a space. By default a row searches the schedule (learning rate and clip) and the
parameters that its objective declares, as far as the row's spec does not fix them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from simgrad.core.errors import InputError
from simgrad.core.spec import Range, print_value, split_spec, with_values
from simgrad.core.typed import Text, Typed, checked
from simgrad.evaluation import metric_of
from simgrad.models import models
from simgrad.objectives import objective, objectives
from simgrad.runs.recipe import Recipe

Choices = tuple[Any, ...]
Where = Range | Choices
Space = dict[str, Where]  # by field, `objective.PARAMETER` or `model.PARAMETER`
Setting = dict[str, Any]

# The schedule: how far from the recipe's own learning rate; and the largest norm of the gradient.
# With `reduction: mean` a narrow VSE++ has norms of 0.01 (goal) to 46 (triplet) in its first epoch
# (results/scenes/gradients.txt): this range goes from always clipped to never.
_RATES = (0.25, 8.0)
_CLIP = Range(0.002, 50)
_EDGE = 0.05  # of a range: closer to its end than that is at its end
_LONGEST = 200  # choices


def _where(value: Any) -> Where | None:
    if value is None or isinstance(value, Range):
        return value
    if isinstance(value, (list, tuple)):
        if not 2 <= len(value) <= _LONGEST:
            raise ValueError(f"is a list of 2 to {_LONGEST} choices, or {{low: .., high: ..}}")
        return tuple(value)
    known = {field.name for field in fields(Range)}
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= known:
        raise ValueError("is {low: .., high: .., log: true}, a list of choices, or null")
    numbers = {key: value[key] for key in ("low", "high")}
    try:
        numbers = {key: float(number) for key, number in numbers.items()}
    except (TypeError, ValueError, OverflowError):
        raise ValueError("has ends that are numbers") from None
    if not all(map(math.isfinite, numbers.values())) or not isinstance(
        value.get("log", True), bool
    ):
        raise ValueError("has ends that are numbers, and log: true or false")
    return Range(numbers["low"], numbers["high"], value.get("log", True))


Searched = Annotated[
    Any,
    BeforeValidator(_where, json_schema_input_type=dict[str, float | bool] | list[Any] | None),
]


class Tune(Typed):
    """How every row of a study is tuned: with the same budget, by validation alone."""

    trials: int = Field(ge=1, le=10_000, description="Settings tried for each row, alike for all")
    space: dict[str, Searched] = Field(
        default_factory=dict,
        description="Where to look, beside the default: fields of the recipe, objective.PARAMETER, "
        "model.PARAMETER; {low, high, log}, a list of choices, or null: not searched",
    )
    search: Literal["tpe", "quasi-random", "random", "grid"] = Field(
        default="tpe", description="tpe: the first half quasi-random, then by Optuna's TPE"
    )
    start: bool = Field(
        default=False,
        description="The first trial of every row has the recipe's own values and the objective's "
        "defaults, so that no row is judged by poor settings alone",
    )
    select: Text | None = Field(
        default=None, description="Validation metric that decides; by default the recipe's"
    )
    halving: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Try settings on complete schedules of this share of the epochs first; the "
        "better half of each row's trials continues to full length. Turned off again if the two "
        "lengths disagree",
    )
    finalists: int = Field(
        default=1,
        ge=1,
        description="So many of a row's best settings are trained with more seeds before one is "
        "chosen, by its mean; 1: the best single trial is chosen",
    )
    repeats: int = Field(
        default=2, ge=1, le=100, description="With how many more seeds finalists are trained"
    )
    reduction: Literal["mean", "sum", "published"] = Field(
        default="mean", description="How all rows reduce their loss (see the recipe's field)"
    )
    seed: int = Field(
        default=1000,
        ge=0,
        lt=2**31,
        description="Of the search and its trials; no seed of the table",
    )

    @property
    def quasi_random(self) -> int:
        """How many trials come before any that learns from others: a power of two near half."""
        if self.search != "tpe":
            return self.trials
        power: int = 2 ** max(1, round(math.log2(max(1, self.trials / 2))))
        return min(self.trials, power)

    @property
    def further(self) -> int:
        """Trainings of a row's finalists with more seeds, at most."""
        return self.finalists * self.repeats if self.finalists > 1 else 0

    @property
    def trainings(self) -> int:
        """Of a row before its setting is chosen, at most."""
        return self.trials + self.further

    @property
    def seeds(self) -> range:
        """Of trials and their repetitions."""
        return range(self.seed, self.seed + 1 + (self.repeats if self.further else 0))

    def of_row(self, space: Mapping[str, Where | None]) -> "Tune":
        """The same search with what one row says of where to look."""
        return self.model_copy(update={"space": {**self.space, **space}}) if space else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values that read back."""
        space = {key: plain(where) for key, where in self.space.items()}
        return {**self.model_dump(exclude={"space"}), "space": space}


def plain(where: Where | None) -> Any:
    """As in a study file."""
    return asdict(where) if isinstance(where, Range) else list(where) if where else None


def base_of(tune: Tune, recipe: Recipe) -> Recipe:
    """A row's recipe as all its runs have it, before any setting is applied."""
    return _changed(
        recipe.replace(reduction=tune.reduction),
        {"reduction": tune.reduction, "select": tune.select or _tuned_round(recipe).select},
    )


def space_of(tune: Tune, recipe: Recipe, fixed: Sequence[str] = ()) -> Space:
    """Where to look for one row's setting; `fixed` fields of the schedule are left alone.

    Of a row of two rounds the second is tuned: the first is the same for all.
    """
    tuned = _tuned_round(recipe)
    found: Space = {}
    if tuned.lr > 0:
        low, high = _RATES
        found["lr"] = Range(low * tuned.lr, high * tuned.lr)
    found["clip"] = _CLIP if tune.reduction == "mean" else (0.5, 2.0, 8.0, 0.0)
    found = {key: where for key, where in found.items() if key not in fixed}
    given = split_spec(tuned.objective, "objective")[1]
    own = objective(tuned.objective).searched()
    found |= {f"objective.{name}": where for name, where in own.items() if name not in given}
    for key, where in tune.space.items():
        if where is None:
            found.pop(key, None)
        elif known_to(tuned, key):
            found[key] = where
    return found


def known_to(recipe: Recipe, key: str) -> bool:
    """Whether a recipe, its objective or its model has such a field."""
    kind, dot, name = key.partition(".")
    if not dot:
        return key in Recipe.model_fields
    if kind == "objective":
        declared = objectives[split_spec(recipe.objective, "objective")[0]].parameters
    elif kind == "model":
        declared = models[split_spec(recipe.model, "model")[0]].parameters
    else:
        return False
    return name in {parameter.name for parameter in declared}


def is_whole(recipe: Recipe, key: str) -> bool:
    """Whether a field or parameter takes whole numbers."""
    example = _own(recipe, key)
    return isinstance(example, int) and not isinstance(example, bool)


def start_of(space: Space, recipe: Recipe) -> Setting:
    """A row's own values of what is searched, as near as its space allows."""
    return {key: _nearest(where, _own(recipe, key)) for key, where in space.items()}


def _nearest(where: Where, value: Any) -> Any:
    if isinstance(where, Range):
        return min(max(float(value), where.low), where.high)
    return value if value in where else where[0]


def _own(recipe: Recipe, key: str) -> Any:
    """A field's value, or the default of a parameter that the spec leaves open."""
    kind, dot, name = key.partition(".")
    if not dot:
        return getattr(_tuned_round(recipe), key)
    registry: Any = objectives if kind == "objective" else models
    declared = registry[split_spec(getattr(_tuned_round(recipe), kind), kind)[0]].parameters
    return next(p.default for p in declared if p.name == name)


def apply(recipe: Recipe, setting: Setting) -> Recipe:
    """The recipe with a setting; of two rounds, the second has it."""
    tuned = _tuned_round(recipe)
    changes = {key: value for key, value in setting.items() if "." not in key}
    for kind in ("objective", "model"):
        own = {k.partition(".")[2]: v for k, v in setting.items() if k.startswith(f"{kind}.")}
        if own:
            changes[kind] = with_values(getattr(tuned, kind), own, kind)
    return _changed(recipe, changes)


def trial_of(recipe: Recipe, seed: int) -> Recipe:
    """As a trial, never tested; of two rounds the first keeps its weights, to mine with."""
    return _changed(recipe.replace(seed=seed), {"trial": True})


def shortened(recipe: Recipe, share: float) -> Recipe:
    """A complete schedule of a share of the epochs: the decay comes earlier, nothing is cut off."""
    tuned = _tuned_round(recipe)
    changes: Setting = {}
    for name in ("epochs", "decay_every", "first_epochs", "freeze_epochs", "finetune_epochs"):
        before = getattr(tuned, name)
        changes[name] = max(1, round(share * before)) if before else 0
    if tuned.first_epochs:  # the objective that the row is about is among them
        changes["epochs"] = max(changes["epochs"], changes["first_epochs"] + 1)
    return _changed(recipe, changes)


def _tuned_round(recipe: Recipe) -> Recipe:
    return recipe if recipe.second_round is None else recipe.round_two()


def _changed(recipe: Recipe, changes: Setting) -> Recipe:
    if recipe.second_round is None:
        return recipe.replace(**changes)
    return recipe.replace(second_round={**recipe.second_round, **changes})


def check_space(tune: Tune, recipe: Recipe, fixed: Sequence[str], where: str) -> None:
    """Refuse a row that has nothing to search, or cannot be trained at the ends of its ranges."""
    space = space_of(tune, recipe, fixed)
    if not space:
        raise InputError(f"{where}: tune: there is nothing to search.")
    for end in (0, -1):
        setting = {key: _ends(values)[end] for key, values in space.items()}
        whole = {k: round(v) if is_whole(recipe, k) else v for k, v in setting.items()}
        told = apply(base_of(tune, recipe), whole)
        checked(Recipe, told.to_dict(), where)
        tuned = _tuned_round(told)
        objective(tuned.objective)
        models.parse(tuned.model)
    select = tune.select or _tuned_round(recipe).select
    if metric_of(select).better != "high":
        raise InputError(f"{where}: tune: select: {select} is better the lower; take another.")


def _ends(where: Where) -> Sequence[Any]:
    return (where.low, where.high) if isinstance(where, Range) else where


def rounded(value: Any, whole: bool) -> Any:
    """A value as it is used and shown: three figures are enough."""
    if isinstance(value, float):
        return round(value) if whole else float(f"{value:.3g}")
    return value


def printed(setting: Setting) -> str:
    """lr=0.0005, tau=0.07"""
    return ", ".join(f"{k.partition('.')[2] or k}={print_value(v)}" for k, v in setting.items())


def at_edges(space: Space, setting: Setting) -> list[str]:
    """In words, which values lie at an end of their range: a better one may be beyond."""
    told = []
    for key, where in space.items():
        end = _end(where, setting[key]) if key in setting else None
        if end is not None:
            value = print_value(setting[key])
            shown = where if isinstance(where, Range) else ", ".join(map(print_value, where))
            told.append(f"{key} = {value} is at the {end} end of its range, {shown}")
    return told


def _end(where: Where, value: Any) -> str | None:
    """Which end of its range a value lies at. A list has ends if it is of three numbers or more."""
    if isinstance(where, Range):
        scale = math.log if where.log else float
        low, high, at = (scale(v) for v in (where.low, where.high, value))
        place = (at - low) / (high - low)
        return "lower" if place <= _EDGE else "upper" if place >= 1 - _EDGE else None
    numbers = [one for one in where if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < max(3, len(where)):
        return None
    return "lower" if value == min(numbers) else "upper" if value == max(numbers) else None


def told_apart(recipes: Sequence[Recipe]) -> list[str]:
    """Fields of the schedule in which rows differ and in nothing else: the study is about them."""
    found = []
    for key in ("lr", "clip"):
        plain = [{**recipe.to_dict(), "seed": 0} for recipe in recipes]
        whole = {repr(one) for one in plain}
        without = {repr({**one, key: None}) for one in plain}
        if len(without) < len(whole):
            found.append(key)
    return found
