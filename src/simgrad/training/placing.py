"""Where a run is kept, if nobody says; and that one that could not begin leaves nothing there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.runs.naming import brief
from simgrad.runs.recipe import Recipe, differing
from simgrad.runs.run import INFO, LOCK, RECIPE, Run

ROUND_ONE = "round1"  # folder of a run's first round, where no other run shares it


def default_folder(recipe: Recipe) -> Path:
    """runs/MODEL-OBJECTIVE-DATA-sSEED; with a number where other settings have that already."""
    parts = (brief(name, getattr(recipe, name)) for name in ("model", "objective", "data"))
    name, number = f"{'-'.join(parts)}-s{recipe.seed}", 1
    while True:
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if _free_or_its_own(folder, recipe.settled()):
            return folder
        number += 1


def _free_or_its_own(folder: Path, recipe: Recipe) -> bool:
    if recipe.second_round is not None:
        folder, recipe = folder / ROUND_ONE, recipe.replace(second_round=None)
    if not (folder / RECIPE).is_file():
        return not (folder.parent / RECIPE).is_file() or folder.name != ROUND_ONE
    return not differing(Run(folder).recipe, recipe)


@contextlib.contextmanager
def withdrawn(folder: Path) -> Iterator[None]:
    """Leave no folder behind for a run that could not begin: the mended call may use it."""
    new = not (folder / RECIPE).exists()
    try:
        yield
    except InputError:
        if new and not (folder / INFO).exists():
            with contextlib.suppress(OSError, InputError):  # another has it, or it is not empty
                with lock(folder / LOCK, wait=False):
                    (folder / RECIPE).unlink(missing_ok=True)
                    (folder / LOCK).unlink(missing_ok=True)
                folder.rmdir()
        raise
