"""What a recipe names (objective, model, cut, metric) is looked up, all of it at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from simgrad.core.errors import InputError
from simgrad.core.text import did_you_mean
from simgrad.data.transforms import named
from simgrad.evaluation import METRICS, check, evaluate_similarities, metric_of
from simgrad.models import models
from simgrad.objectives import objective
from simgrad.runs.recipe import Recipe


def _check_select(name: str) -> None:
    """Only what every validation computes can choose a checkpoint; whoever wrote a metric is told
    now what is wrong with it, and not at the first validation."""
    chosen = metric_of(name)
    for one in METRICS:
        made = one.factory(*(p.default[0] for p in one.parameters))
        if made.own and made.each is not None:
            found = check(one.name)
            if not found.ok and made.own == chosen.own:
                raise InputError(f"metric '{made.name}' ({made.own}): {'; '.join(found.problems)}.")
    known = evaluate_similarities(torch.eye(2), torch.arange(2)).to_dict()
    if name not in known:
        near = did_you_mean(name, known)
        hint = f" Did you mean '{near}'?" if near else ""
        raise InputError(
            f"there is no metric '{name[:80]}'.{hint} `{METRICS.command}` lists them all; one of "
            "your own needs `simgrad --with FILE.py`."
        )


# Fields that name what is declared somewhere, and who knows the names.
_LOOKED_UP: dict[str, Callable[[str], Any]] = {
    "objective": objective,
    "first_objective": objective,
    "model": models.parse,
    "augment": partial(named, train=True, size=224),
    "select": _check_select,
}


def wrong_names(recipe: Recipe, where: str) -> list[str]:
    """What a recipe names and nobody has declared: a line for each, with its field.

    Not asked when a recipe is read: one of a finished run can be looked at without the user's own
    file that declares its objective.
    """
    told = []
    rounds = {where: recipe}
    if recipe.second_round is not None:
        rounds[f"{where}: second_round"] = recipe.round_two()
    for place, one in rounds.items():
        for field, look_up in _LOOKED_UP.items():
            value = getattr(one, field)
            if value is None or (one is not recipe and value == getattr(recipe, field)):
                continue
            try:
                look_up(value)
            except InputError as error:
                told.append(f"{place}: {field}: {error}")
    return told


def check_names(recipe: Recipe, where: str) -> None:
    """Refuse a recipe that names what nobody has declared, all of it at once."""
    told = wrong_names(recipe, where)
    if told:
        raise InputError("\n".join(told))
