"""Whether every row of a study can be searched as its plan says, told before the first run."""

from collections import Counter
from typing import TYPE_CHECKING

from simgrad.core.errors import InputError
from simgrad.studies.space import check_space, known_to, told_apart

if TYPE_CHECKING:
    from simgrad.studies.plan import Plan

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
