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
A search that some row of a study cannot do is refused before the first run.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simgrad.core.errors import InputError
from simgrad.core.spec import Range, print_value, split_spec, with_values
from simgrad.core.typed import checked
from simgrad.evaluation import metric_of
from simgrad.models import models
from simgrad.objectives import objective, objectives
from simgrad.runs.recipe import Recipe
from simgrad.studies.tune import (
    CrossedRanges,
    End,
    Setting,
    Space,
    Tune,
    Where,
    around,
    ends,
    mixes,
)

if TYPE_CHECKING:
    from simgrad.studies.plan import Plan

# The schedule: how far from the recipe's own learning rate; and the largest norm of the gradient.
# With `reduction: mean` a narrow VSE++ has norms of 0.01 (goal) to 46 (triplet) in its first epoch
# (results/scenes/gradients.txt): this range goes from always clipped to never.
_RATES = (0.25, 8.0)
_CLIP = Range(0.002, 50)


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


def left_out(plan: "Plan") -> list[str]:
    """Of each rule of one's own, the numbers that a tuned study leaves at their defaults."""
    found: dict[str, list[str]] = {}
    for row in plan.rows:
        if plan.tune is None or row.ensemble:
            continue
        recipe = _tuned_round(plan.recipe(row, 0))
        name, given = split_spec(recipe.objective, "objective")
        numbers = [p.name for p in objectives[name].parameters if type(p.default) in (int, float)]
        searched = space_of(plan.tune.of_row(row.space), recipe)
        rest = [n for n in numbers if n not in given and f"objective.{n}" not in searched]
        if objective(recipe.objective).own and rest:
            found[name] = rest
    return [
        f"{name}: {', '.join(rest)} {'is' if len(rest) == 1 else 'are'} not searched (declare "
        "search=)."
        for name, rest in found.items()
    ]


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
    return _changed(recipe.replace(seed=seed), {"validation_only": True})


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
        setting = {key: ends(values)[end] for key, values in space.items()}
        whole = {k: round(v) if is_whole(recipe, k) else v for k, v in setting.items()}
        told = apply(base_of(tune, recipe), whole)
        checked(Recipe, told.to_dict(), where)
        tuned = _tuned_round(told)
        objective(tuned.objective)
        models.parse(tuned.model)
    _check_crossed(tune, space, where)
    select = tune.select or _tuned_round(recipe).select
    if metric_of(select).better != "high":
        raise InputError(f"{where}: tune: select: {select} is better the lower; take another.")


def _check_crossed(tune: Tune, space: Space, where: str) -> None:
    """Every point is tried with every value, so the budget has to be a multiple of these."""
    crossed = [key for key, values in space.items() if isinstance(values, CrossedRanges)]
    if not crossed:
        return
    if tune.search == "tpe":
        raise InputError(
            f"{where}: tune: {crossed[0]} is crossed with drawn points, and tpe draws none after "
            "the first half: give `search: quasi-random`."
        )
    each = len(mixes(space))
    if tune.search != "grid" and tune.trials % each:
        raise InputError(
            f"{where}: tune: trials: each point is tried {each} times ({', '.join(crossed)}): give "
            f"a multiple of {each}, not {tune.trials}."
        )


def extensions(tune: Tune, recipe: Recipe, space: Space) -> dict[tuple[str, End], Range]:
    """Where to look beyond each end of each range, as far as recipe and objective allow it."""
    found: dict[tuple[str, End], Range] = {}
    sides: tuple[End, End] = ("lower", "upper")
    for key, where in space.items():
        if not tune.extend or not isinstance(where, Range):
            continue
        for end in sides:
            wider = around(where, end)
            value = wider.low if end == "lower" else wider.high
            setting = {key: round(value) if is_whole(recipe, key) else value}
            try:
                tuned = _tuned_round(apply(base_of(tune, recipe), setting))
                objective(tuned.objective)
                models.parse(tuned.model)
            except InputError:
                continue
            found[key, end] = wider
    return found


def printed(setting: Setting) -> str:
    """lr=0.0005, tau=0.07"""
    return ", ".join(f"{k.partition('.')[2] or k}={print_value(v)}" for k, v in setting.items())


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


SEEDS_APART = 10_000  # the seeds of two replicates, so that none is used twice


def check_tuning(plan: "Plan", where: str) -> None:
    """Refuse a search that some row cannot do."""
    if plan.tune is None:
        return
    if any(row.ensemble for row in plan.rows):
        raise InputError(f"{where}: tune: a study with ensembles cannot be tuned; tune their rows.")
    if plan.tune.splits == "new" and plan.tune.replicates == 1:
        raise InputError(f"{where}: tune: `splits: new` is of replicates: give their number.")
    shared = set(plan.tune.seeds) & set(plan.seeds)
    if shared:
        raise InputError(
            f"{where}: tune: seed {min(shared)} is among the seeds of the table; trials have "
            "seeds of their own."
        )
    numbers = Counter(seed for one in plan.replicates for seed in one.seeds)
    numbers.update(seed for one in plan.replicates if one.tune for seed in one.tune.seeds)
    if max(numbers.values()) > 1:
        twice = max(numbers, key=lambda seed: numbers[seed])
        raise InputError(
            f"{where}: tune: seed {twice} is used twice: the seeds of replicates are "
            f"{SEEDS_APART:,} apart, so that those of one must be closer together."
        )
    recipes = [plan.recipe(row, 0) for row in plan.replicates[-1].rows]
    for key in plan.tune.space:
        if not any(known_to(recipe, key) for recipe in recipes):
            raise InputError(f"{where}: tune: space: no row has anything called '{key[:80]}'.")
    fixed = told_apart(recipes)
    for row, recipe in zip(plan.rows, recipes, strict=True):
        place = f"{where}: row '{row.label[:80]}'"
        for key in row.space:
            if not known_to(recipe, key):
                raise InputError(f"{place}: space: it has nothing called '{key[:80]}'.")
        check_space(plan.tune.of_row(row.space), recipe, fixed, place)
