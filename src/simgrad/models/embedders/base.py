"""What an encoder of somebody else is to simgrad: two functions to vectors, known by its content.

A spec names one: `sentence-transformers(source=FOLDER)`, `transformers(source=FOLDER)`,
`open-clip(source=FOLDER)`, `onnx(source=FOLDER)`, `python(file=FILE.py)`. Code that comes with a
model is never run by a spec: who trusts it loads the model in Python and passes the object.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from simgrad.core.derived import contents_hash
from simgrad.core.errors import InputError
from simgrad.core.spec import Registry, print_spec


class Embedder:
    """Sentences and pictures to vectors (n, d), of length 1 or not."""

    name: ClassVar[str]

    def __str__(self) -> str:
        return print_spec(self)

    def texts(self, sentences: Sequence[str], device: torch.device) -> Tensor:
        """One row for each sentence."""
        raise InputError(f"'{self}' reads no sentences.")

    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        """One row for each picture (PIL, RGB)."""
        raise InputError(f"'{self}' reads no pictures.")

    def content(self) -> str | None:
        """Equal hashes, equal vectors; None: not known, so nothing that it makes is kept."""
        return None

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Whether a folder holds one of these."""
        return False


embedders: Registry[Embedder] = Registry("embedder", "simgrad models")
"""Every kind of encoder that is not simgrad's own; `embedders.declare` adds one."""


def embedder_of(folder: Path) -> str | None:
    """The spec of the encoder in a folder; None: none that is known."""
    found = (one.name for one in embedders if type(embedders.parse(one.name)).recognises(folder))
    name = next(found, None)
    return None if name is None else f"{name}(source={folder})"


def folder_content(source: str) -> str | None:
    """A hash of all files of a folder; a name on a hub is not known by its content."""
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return None
    return contents_hash(sorted(file for file in folder.rglob("*") if file.is_file()))


def folder_or_name(source: str) -> str:
    """A folder, or a name on a hub, as other libraries take it."""
    if not source:
        raise InputError("no model is named: give its folder or name, as in onnx(source=FOLDER).")
    folder = Path(source).expanduser()
    if not folder.exists() and (folder.is_absolute() or source.startswith(".")):
        raise InputError(f"{source}: there is no such folder.")
    return str(folder) if folder.is_dir() else source


def as_rows(made: Any, count: int, what: str) -> Tensor:
    """What an encoder gave as float32 rows, or an error that says what is wrong with it."""
    try:
        rows = torch.as_tensor(made).float().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what}: gave no array of numbers ({str(error)[:100]}).") from None
    if rows.dim() != 2 or len(rows) != count or 0 in rows.shape:
        raise InputError(
            f"{what}: gave an array of shape {tuple(rows.shape)} for {count} items; rows of "
            f"numbers are needed, ({count}, dimension)."
        )
    if not bool(torch.isfinite(rows).all()):
        bad = int((~torch.isfinite(rows).all(dim=1)).nonzero()[0])
        raise InputError(f"{what}: NaN or infinity in the vector of item {bad}.")
    return rows


def refused(source: str, error: Exception) -> InputError:
    """Why a model of another library does not load, in words."""
    text = str(error).strip()
    if "trust_remote_code" in text:
        return InputError(
            f"{source}: comes with code of its own, which simgrad does not run. If you trust it, "
            "load the model in Python with trust_remote_code=True and pass it to simgrad.open."
        )
    first = text.splitlines()[0][:160] if text else type(error).__name__
    return InputError(f"{source}: cannot be loaded ({first}).")
