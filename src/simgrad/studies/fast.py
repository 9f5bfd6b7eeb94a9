"""A small version of a study's runs, for a quick look: `simgrad study FILE --fast`.

What the rows differ in stays: a study of learning rates keeps its rates.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from simgrad.models import models
from simgrad.runs.recipe import Recipe

_RATE = 1e-3
_FIRST = "triplet"  # learns from every negative at once


def fast_changes(recipes: Sequence[Recipe]) -> tuple[list[dict[str, Any]], str]:
    """What makes each recipe fast, and that in words.

    Where it would make two rows the same that were not, the fields in which these two differ are
    left as they are, in all rows alike.
    """
    small = [_small(recipe) for recipe in recipes]
    kept: set[str] = set()
    while more := _lost(recipes, small):
        kept |= more
        small = [{k: v for k, v in one.items() if k not in kept} for one in small]
    told = {
        "model": "narrow models",
        "batch": "half the batch",
        "epochs": "a tenth of the epochs",
        "lr": f"learning rate {_RATE:g}",
        "first_objective": f"one epoch of {_FIRST} first",
    }
    return small, ", ".join(words for field, words in told.items() if field not in kept)


def _small(recipe: Recipe) -> dict[str, Any]:
    """Half the batch: in so short a run the number of steps counts."""
    first = max(1, recipe.first_epochs)
    # At least one epoch with the objective that the row is about.
    epochs = max(first + 1, recipe.epochs // 10)
    changes: dict[str, Any] = {
        "model": str(models.parse(recipe.model).narrow()), "lr": _RATE,
        "freeze_epochs": 0, "finetune_epochs": 0, "batch": max(2, recipe.batch // 2),
        "epochs": epochs, "decay_every": epochs,  # too short to decay in steps
        "first_objective": recipe.first_objective or _FIRST, "first_epochs": first,
        "wise": 0, "also": None,
    }  # fmt: skip
    if recipe.second_round:
        second = dict(recipe.second_round)
        second["epochs"] = max(1, int(second.get("epochs", recipe.epochs)) // 10)
        # One epoch from scratch would show nothing: it goes on from the first round.
        second |= {"depth": 60, "first_epochs": 0, "from_round_one": True}
        changes["second_round"] = second
    return changes


def _lost(recipes: Sequence[Recipe], small: Sequence[dict[str, Any]]) -> set[str]:
    """Fields that told two rows apart and would no longer."""
    before = [recipe.to_dict() for recipe in recipes]
    after = [{**one, **changes} for one, changes in zip(before, small, strict=True)]
    return {
        field
        for i, j in itertools.combinations(range(len(before)), 2)
        if after[i] == after[j]
        for field in before[i]
        if before[i][field] != before[j][field]
    }
