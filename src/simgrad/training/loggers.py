"""Where the figures of a run are shown too: TensorBoard, wandb, or a function of one's own.

A logger is a function of a step and figures by name: `log(120, {"val/rsum": 231.4, "lr": 2e-4})`.
Give one to `simgrad.train(recipe, folder, log=my_function)`. One with a name for `--log` is made
when a run begins, by a function like those below.

Examples:
    >>> def printing(folder, recipe, step, at_end):
    ...     return lambda step, figures: print(step, *figures)
    ...
    >>> LOGGERS["printing"] = printing  # in a file of your own: simgrad --with FILE.py
    >>> chosen(Recipe(log="printing"))
    ['printing']
"""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe

Log = Callable[[int, dict[str, float]], None]
# The run's folder, its recipe, the step it goes on from; what to do when it ends goes on the stack.
Maker = Callable[[Path, Recipe, int, ExitStack], Log]
TENSORBOARD = "tensorboard"


def tensorboard(folder: Path, recipe: Recipe, step: int, at_end: ExitStack) -> Log:
    """Files below the run's folder."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder / TENSORBOARD), purge_step=step + 1)
    at_end.callback(writer.close)

    def log(step: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return log


def wandb(folder: Path, recipe: Recipe, step: int, at_end: ExitStack) -> Log:
    """A run of Weights & Biases, with its own login; the same one when a run is resumed."""
    import wandb as package

    own = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    run = package.init(
        project="simgrad",
        name=folder.resolve().name,
        id=own,
        resume="allow",
        dir=str(folder),
        config=recipe.to_dict(),
        reinit="create_new",
    )
    at_end.callback(run.finish)
    return lambda step, figures: run.log(figures, step=step)


LOGGERS: dict[str, Maker] = {"tensorboard": tensorboard, "wandb": wandb}
_PACKAGES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}


def chosen(recipe: Recipe) -> list[str]:
    """The loggers that a recipe names; an error before the run begins, not at its first figure."""
    names = [name.strip() for name in (recipe.log or "").split(",") if name.strip()]
    for name in names:
        if name not in LOGGERS:
            raise InputError(f"log: there is no '{name[:40]}' (there are: {', '.join(LOGGERS)}).")
        _require(name)
    return list(dict.fromkeys(names))


def _require(name: str) -> None:
    import importlib

    try:
        importlib.import_module(_PACKAGES.get(name, "simgrad"))
    except ImportError:
        raise InputError(
            f"log: {name} needs a package that is not installed: pip install 'simgrad[{name}]', or "
            "remove it from `log`."
        ) from None
