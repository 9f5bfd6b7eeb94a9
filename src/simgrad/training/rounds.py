"""Train a recipe: where its run is kept, and two rounds in one (AOQ).

A second round mines with the first one's best model, and trains again with its lists.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.core.threads import threads
from simgrad.data.base import Dataset
from simgrad.retriever.encoding import building
from simgrad.retriever.mining import mine_with
from simgrad.retriever.opening import open_folder
from simgrad.retriever.prepare import opened
from simgrad.runs.data import trained_on
from simgrad.runs.naming import brief
from simgrad.runs.recipe import Recipe, differing, from_dict, read_recipe
from simgrad.runs.recipe_names import check_names
from simgrad.runs.run import BEST, INFO, LOCK, RECIPE, Run
from simgrad.training import distributed
from simgrad.training.loggers import Log
from simgrad.training.sitting import train_round

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
    """Remove the new folder of a run that could not begin: the corrected call may use its name."""
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


def train(
    recipe: Recipe | str | Path | None = None,
    folder: str | Path | None = None,
    *,
    dataset: Dataset | None = None,
    quiet: bool = False,
    stop_after: float | None = None,
    shared: dict[Any, Any] | None = None,
    round_one: Path | None = None,
    log: Log | None = None,
    **fields: Any,
) -> Run:
    """Train in `folder`, or resume there; a finished run is returned as it is.

    `simgrad.train(objective="nt-xent", data="photos/", epochs=10)` is all that it needs. VSE++, the
    model of a recipe that names none, sees pictures by ResNet50, whose weights are fetched once;
    `model="light"` needs nothing but what is installed.

    Args:
        recipe: what to do, or the YAML file that says it; by default VSE++'s published schedule,
            and what is usual for the model.
        folder: where the run is kept; by default runs/MODEL-OBJECTIVE-DATA-sSEED.
        dataset: an opened data set, used instead of the one that the recipe names.
        quiet: print nothing.
        stop_after: stop the run after this many seconds, ready to be resumed; two rounds share
            them.
        shared: what runs side by side in one process have read, kept for the others.
        round_one: of a recipe of two rounds, where the first is trained; other runs may share it.
            `folder/round1` by default.
        log: called with a step and figures by name at every evaluation; not in a first round.
        fields: fields of the recipe, which they override; `data` may be an opened data set.

    Examples:
        >>> recipe = simgrad.Recipe(
        ...     data="scenes(train=40, val=10, test=10, features=global)",
        ...     model="vse++(dimension=16, word_dimension=8)",
        ...     objective="nt-xent",
        ...     batch=16,
        ...     epochs=1,
        ... )
        >>> run = simgrad.train(recipe, "runs/first", quiet=True)
        >>> run
        <run first: nt-xent, seed 0, finished>
        >>> 0 <= run.test["rsum"] <= 600
        True
    """
    where = str(recipe) if isinstance(recipe, str | Path) else "recipe"
    if isinstance(fields.get("data"), Dataset):
        dataset = fields.pop("data")
    if isinstance(recipe, Recipe):
        recipe = recipe.replace(**fields) if fields else recipe
    else:  # with the fields at once: what is usual depends on the model
        recipe = from_dict(fields, where) if recipe is None else read_recipe(recipe, **fields)
    if folder is None:
        check_names(recipe, where)
        folder = default_folder(trained_on(recipe.settled(), dataset))
    folder = Path(folder).expanduser()
    if not (folder / RECIPE).is_file():  # a run that has begun imports the user's files later
        check_names(recipe, where)
    recipe = trained_on(recipe.settled(), dataset)
    if recipe.second_round is None:
        with withdrawn(folder):
            return train_round(
                recipe,
                folder,
                dataset=dataset,
                quiet=quiet,
                stop_after=stop_after,
                shared=shared,
                log=log,
            )
    place = round_one or folder / ROUND_ONE
    # Joined once for both rounds: processes that join anew may find addresses that are old.
    with withdrawn(folder), distributed.together():
        return _train_two(
            recipe,
            folder,
            place,
            dataset=dataset,
            quiet=quiet,
            stop_after=stop_after,
            shared=shared,
            log=log,
        )


def _train_two(
    recipe: Recipe,
    folder: Path,
    round_one: Path,
    *,
    dataset: Dataset | None = None,
    quiet: bool = False,
    stop_after: float | None = None,
    shared: dict[Any, Any] | None = None,
    log: Log | None = None,
) -> Run:
    """Round one and what is mined with it in `round_one`, round two in `folder`."""
    alone = recipe.replace(second_round=None)
    round_one = _begun_with(folder, alone) or round_one
    begun = time.monotonic()
    first = train_round(
        alone, round_one, dataset=dataset, quiet=quiet, stop_after=stop_after, shared=shared
    )
    if not first.finished:
        return first
    second = recipe.round_two()
    with building:
        dataset = opened(recipe, {} if shared is None else shared, dataset)
    lists = round_one / f"candidates-{second.depth}"
    count = first.threads or recipe.threads  # both rounds alike: the second may begin later
    with threads(count):
        changes: dict[str, Any] = {
            "candidates": str(mine_run(first, lists, second.depth, dataset=dataset)),
            "threads": count,
        }
    if recipe.from_round_one:
        changes["start_from"] = str(first.path / BEST)
    return train_round(
        second.replace(**changes).settled(),
        folder,
        dataset=dataset,
        quiet=quiet,
        stop_after=None if stop_after is None else begun + stop_after - time.monotonic(),
        shared=shared,
        log=log,
    )


def _begun_with(folder: Path, first: Recipe) -> Path | None:
    """The first round of a second one that has begun: a study's rows may have changed since."""
    if not (folder / RECIPE).is_file():
        return None
    place = Path(Run(folder).recipe.candidates or "").parent
    return place if (place / RECIPE).is_file() and Run(place).recipe == first else None


def mine_run(source: Run, folder: Path, depth: int, **options: Any) -> Path:
    """Mine with a run's best model, on the device of its training; the folder of the lists."""
    mine_with(open_folder(source, device=source.recipe.device), folder, depth, **options)
    return folder
