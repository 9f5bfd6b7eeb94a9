"""Two rounds in one recipe (AOQ): train, mine with the best model, train again with its lists."""

from pathlib import Path
from typing import Any

from simgrad.data.base import Dataset
from simgrad.runs.mining import mine_run
from simgrad.runs.prepare import building, opened
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import BEST, RECIPE, Run
from simgrad.training import distributed
from simgrad.training.loop import train_round


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    dataset: Dataset | None = None,
    quiet: bool = False,
    stop_after: float | None = None,
    shared: dict[Any, Any] | None = None,
    round_one: Path | None = None,
) -> Run:
    """Train, or go on training, in `folder`; a finished run is returned as it is.

    `stop_after` ends the run early after so many seconds, ready to be resumed. Runs side by side in
    one process share what they read through `shared`. Of a recipe of two rounds, the first is
    trained in `round_one`, which other runs may share; in `folder/round1` if left out.
    """
    if recipe.second_round is None:
        return train_round(
            recipe, folder, dataset=dataset, quiet=quiet, stop_after=stop_after, shared=shared
        )
    folder = Path(folder)
    place = round_one or folder / "round1"
    with distributed.together():  # parted and joined again, processes may take old addresses
        return _train_two(recipe, folder, place, dataset=dataset, quiet=quiet, shared=shared)


def _train_two(
    recipe: Recipe,
    folder: Path,
    round_one: Path,
    *,
    dataset: Dataset | None = None,
    quiet: bool = False,
    shared: dict[Any, Any] | None = None,
) -> Run:
    """Round one and what is mined with it in `round_one`, round two in `folder`."""
    changes = dict(recipe.second_round or {})
    go_on = bool(changes.pop("from_round_one", False))
    recipe.replace(**{**changes, "second_round": None})  # a mistake is told before the first round
    alone = recipe.replace(second_round=None)
    round_one = _begun_with(folder, alone) or round_one
    first = train_round(alone, round_one, dataset=dataset, quiet=quiet, shared=shared)
    if not first.finished:
        return first
    depth = int(changes.get("depth", recipe.depth))
    with building:
        dataset = opened(recipe, {} if shared is None else shared, dataset)
    candidates = mine_run(first, round_one / f"candidates-{depth}", depth, dataset=dataset)
    changes |= {"second_round": None, "candidates": str(candidates)}
    if go_on:
        changes["start_from"] = str(first.path / BEST)
    return train_round(
        recipe.replace(**changes), folder, dataset=dataset, quiet=quiet, shared=shared
    )


def _begun_with(folder: Path, first: Recipe) -> Path | None:
    """The first round of a second one that has begun: a study's rows may have changed since."""
    if not (folder / RECIPE).is_file():
        return None
    place = Path(Run(folder).recipe.candidates or "").parent
    return place if (place / RECIPE).is_file() and Run(place).recipe == first else None
