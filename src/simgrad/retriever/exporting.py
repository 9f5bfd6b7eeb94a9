"""A trained model for another program, with what its objective learned beside it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from simgrad.core.errors import InputError, writing
from simgrad.core.files import lock
from simgrad.models import Checkpoint
from simgrad.models.inputs import Scale
from simgrad.objectives import Objective, objective
from simgrad.runs.recipe import Recipe

if TYPE_CHECKING:
    from simgrad.retriever.retriever import Retriever


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    format: str
    adapter: bool
    checkpoint: Checkpoint
    scale: Scale | None = None  # that the objective learned

    def __str__(self) -> str:
        names = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
        return f"{self.format} in {self.folder}{': ' if names else ''}{', '.join(names)}"

    __repr__ = __str__  # what a prompt shows


def export(
    retriever: "Retriever", folder: Path, format: str | None = None, *, adapter: bool = False
) -> Exported:
    """Write a model into a new folder."""
    model, run = retriever.model, retriever.run
    formats = model.formats()
    format = format or next(iter(formats), "none")
    if format not in formats:
        has = f"it can be written as {', '.join(formats)}" if formats else "it has none"
        raise InputError(f"model '{model.config}' cannot be written as {format}: {has}.")
    tokenizer = retriever.tokenizer
    scale = None
    if run is not None:
        scale = learned_scale(run.recipe, retriever.checkpoint, retriever.name)
    if scale is not None:
        model.set_scale(scale)
        scale = model.pretrained_scale() or scale  # CLIP keeps no bias
    with _growing(folder) as growing:
        model.export(format, growing, tokenizer, adapter=adapter)
    return Exported(folder, format, adapter, retriever.checkpoint, scale)


@contextmanager
def _growing(folder: Path) -> Iterator[Path]:
    """A place beside a folder, which gets its name when all is written; for one process a time."""
    place, busy = (folder.with_name(f".{folder.name}.{end}") for end in ("partial", "lock"))
    with lock(busy, wait=False, what=f"the export {folder}"):
        try:
            if folder.exists() and any(folder.iterdir()):
                raise InputError(f"{folder}: is there already, and not empty; give another folder.")
            shutil.rmtree(place, ignore_errors=True)
            with writing(place):
                place.mkdir()
            yield place
            if folder.exists():
                folder.rmdir()
            place.rename(folder)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            busy.unlink(missing_ok=True)  # while it is held


def learned_objective(recipe: Recipe, checkpoint: Checkpoint, where: str) -> Objective:
    """A run's objective with what it had learned when its best weights were kept."""
    made = objective(recipe.objective)
    learned = checkpoint.extra.get("objective") or {}
    try:
        made.load_state_dict({k: torch.tensor(v) for k, v in learned.items()})
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{where}: what it learned beside the model is not of its recipe's "
            f"objective, {made} ({str(error).splitlines()[-1].strip()[:100]})."
        ) from None
    return made


def learned_scale(recipe: Recipe, checkpoint: Checkpoint, where: str) -> Scale | None:
    """The scale and bias that it learned; None: it learns none."""
    if not checkpoint.extra.get("objective"):
        return None
    scale, bias = learned_objective(recipe, checkpoint, where).affine()
    if scale is None:
        return None
    return Scale(scale.item(), 0.0 if bias is None else bias.item())
