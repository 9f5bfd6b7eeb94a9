"""A trained model, written for another program."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.models import Loaded
from simgrad.models.inputs import Scale
from simgrad.retriever.learned import learned_scale
from simgrad.retriever.trained import load_trained


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    format: str
    adapter: bool
    loaded: Loaded
    scale: Scale | None = None  # that the objective learned


def export_trained(
    source: str | Path, folder: Path, format: str | None = None, *, adapter: bool = False
) -> Exported:
    """Write a run's best model, or a checkpoint, into a new folder."""
    loaded, run = load_trained(source)
    model = loaded.model
    formats = model.formats()
    format = format or next(iter(formats), "none")
    if format not in formats:
        has = f"it can be written as {', '.join(formats)}" if formats else "it has none"
        raise InputError(f"model '{model.config}' cannot be written as {format}: {has}.")
    tokenizer = loaded.require_tokenizer(source)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is there already, and not empty; give another --to.")
    scale = None if run is None else learned_scale(run.recipe, loaded, run.path)
    if scale is not None:
        model.set_scale(scale)
        scale = model.pretrained_scale() or scale  # CLIP keeps no bias
    growing = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(growing, ignore_errors=True)
    growing.mkdir(parents=True)
    try:
        model.export(format, growing, tokenizer, adapter=adapter)
        if folder.exists():
            folder.rmdir()
        growing.rename(folder)
    finally:
        shutil.rmtree(growing, ignore_errors=True)
    return Exported(folder, format, adapter, loaded, scale)
