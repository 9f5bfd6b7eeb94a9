"""A trained model, written for another program."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from simgrad.core.disk import writing
from simgrad.core.errors import InputError
from simgrad.core.files import lock
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
    scale = None if run is None else learned_scale(run.recipe, loaded, run.path)
    if scale is not None:
        model.set_scale(scale)
        scale = model.pretrained_scale() or scale  # CLIP keeps no bias
    with _growing(folder) as growing:
        model.export(format, growing, tokenizer, adapter=adapter)
    return Exported(folder, format, adapter, loaded, scale)


@contextmanager
def _growing(folder: Path) -> Iterator[Path]:
    """A place beside a folder, which gets its name when all is written; for one process a time."""
    place, busy = (folder.with_name(f".{folder.name}.{end}") for end in ("partial", "lock"))
    with lock(busy, wait=False, what=f"the export {folder}"):
        try:
            if folder.exists() and any(folder.iterdir()):
                raise InputError(f"{folder}: is there already, and not empty; give another --to.")
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
