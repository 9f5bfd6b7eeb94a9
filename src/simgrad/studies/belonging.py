"""A run belongs to its row: whether a folder of a study holds the run that is asked for there.

Tables, reports, ensembles and `--check` read the runs of a study through here, so that a folder
that was copied from another row or seed, or edited, is named and never counted.
"""

from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.runs.recipe import Recipe, differing
from simgrad.runs.run import INFO, RECIPE, TEST, Run

_NOTED = ("seed", "objective", "model")  # fields of a recipe that run.json has too
_SHOWN = 3  # fields that are told with their values


def own_run(folder: Path, recipe: Recipe) -> Run:
    """The run in a folder, begun or not; refused if it is not the one that `recipe` asks for."""
    run = Run(folder)
    if not (folder / RECIPE).is_file():
        if run.finished:
            raise InputError(
                f"{folder}: its {RECIPE} is missing, so nobody knows what it is. {_DO}"
            )
        return run
    told = run.recipe
    _require_alike(folder / RECIPE, *_asked_of(recipe, told))
    _require_round_one(told, recipe)
    for name in _NOTED:
        noted = run.info.get(name)
        if noted is not None and noted != getattr(told, name):
            raise InputError(
                f"{folder / INFO}: is of another run than the {RECIPE} beside it ({name} is "
                f"{noted!r:.60} there and {getattr(told, name)!r:.60} here). {_DO}"
            )
    return run


_DO = "Copy the run's folder again, or remove it, and the study's command trains it again."


def _asked_of(recipe: Recipe, told: Recipe) -> tuple[Recipe, Recipe]:
    """What a folder has to hold, and what it holds; of two rounds it holds the second, with the
    places of what was mined."""
    if recipe.second_round is None:
        return recipe, told
    found: dict[str, Any] = {"candidates": None}
    if recipe.from_round_one:
        found["start_from"] = None
    return recipe.round_two().replace(**found), told.replace(**found)


def _require_round_one(told: Recipe, recipe: Recipe) -> None:
    """Where the first of two rounds is still there, it is the one that was asked for."""
    if recipe.second_round is not None and told.candidates is not None:
        place = Path(told.candidates).parent
        if (place / RECIPE).is_file():
            _require_alike(place / RECIPE, recipe.replace(second_round=None), Run(place).recipe)


def _require_alike(path: Path, asked: Recipe, told: Recipe) -> None:
    fields = [
        name
        for name in differing(asked.settled(), told)
        if not _same_place(getattr(asked, name), getattr(told, name))
    ]
    if not fields:
        return
    shown = [
        f"{name} is {getattr(told, name)!r:.60} there and {getattr(asked, name)!r:.60} in the study"
        for name in fields[:_SHOWN]
    ]
    more = f", and {len(fields) - _SHOWN} more" if len(fields) > _SHOWN else ""
    raise InputError(
        f"{path}: not the run of this row and seed: {'; '.join(shown)}{more}. It was copied or "
        f"edited. {_DO}"
    )


def _same_place(asked: Any, told: Any) -> bool:
    """A path that was relative when the study was planned is absolute in its runs."""
    return isinstance(asked, str) and isinstance(told, str) and told.endswith(f"/{asked}")


def made_from(members: list[Run]) -> dict[str, str]:
    """The tests that an ensemble is the mean of, as its run.json has them."""
    return {run.name: sha256(run.path / TEST) for run in members}


def own_ensemble(folder: Path, members: list[Run]) -> Run:
    """What the test of an ensemble found; refused if it is not the mean of these runs."""
    run = Run(folder)
    ready = run.finished and all(member.finished for member in members)
    if ready and run.info.get("members") != made_from(members):
        raise InputError(
            f"{folder}: not the ensemble of {', '.join(member.name for member in members)} as they "
            "are now: it was copied, or they have changed. Run the study's command again."
        )
    return run
