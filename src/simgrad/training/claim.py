"""Whose folder it is: a run goes on only where its own recipe and data are."""

from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.files import sweep
from simgrad.data.base import Dataset
from simgrad.runs import run
from simgrad.runs.recipe import Recipe, read_recipe
from simgrad.runs.run import Run


def claim(recipe: Recipe, folder: Path) -> None:
    """Write the recipe into a new folder; refuse a folder that holds another run."""
    path = folder / run.RECIPE
    for place in (folder, folder / run.BEST, folder / run.LAST):
        sweep(place)
    if not path.exists():
        recipe.save(path)
        return
    there = read_recipe(path)
    # May change between sittings: how the same gradient is computed, and where.
    machine = ("device", "workers", "graphs", "checkpoint_seconds", "micro_batch")
    old, new = there.to_dict(), recipe.to_dict()
    changed = [k for k in new if old[k] != new[k] and k not in machine]
    if changed:
        raise InputError(
            f"{folder} holds a run with another recipe ({', '.join(changed)} differ). "
            "Give another --output, or remove the folder."
        )


def same_data(folder: Path, dataset: Dataset) -> None:
    """Refuse to go on with other data than the run began with."""
    told = Run(folder).info.get("data_fingerprint")
    if told is not None and told != dataset.fingerprint():
        raise InputError(
            f"{folder}: the data set {dataset.name} is not what it was when this run began. Put it "
            "back, or give another --output."
        )
