"""What can be made again: kept with what it was made from and a hash of its content.

An array NAME.npy has NAME.json beside it. One that does not fit what is asked for, or is not what
was written (cut off, overwritten, a flipped bit), counts as not there, and is made anew.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import open_array, read_json, sha256, write_json
from simgrad.core.hashes import content_hash


def seal(path: Path, made_from: str) -> None:
    """Say of an array that is whole on disk what it was made from."""
    write_json(path.with_suffix(".json"), _seal(path, made_from))


def _seal(path: Path, made_from: str) -> dict[str, str]:
    return {"made_from": made_from, "content": content_hash(path)}


def open_sealed(path: Path, made_from: str, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """The array, memory-mapped, if it is there, fits and is whole."""
    with contextlib.suppress(InputError, OSError):
        if read_json(path.with_suffix(".json")) == _seal(path, made_from):
            array = open_array(path)
            return array if array.shape == shape else None
    return None


def write_checked(path: Path, value: dict[str, Any]) -> None:
    """Write JSON that carries a hash of itself."""
    write_json(path, {**value, "sha256": _hash(value)})


def read_checked(path: Path) -> Any:
    """What `write_checked` wrote; an error if it is not that any more."""
    value = read_json(path)
    told = value.pop("sha256", None) if isinstance(value, dict) else None
    if told is not None and told != _hash(value):
        raise InputError(
            f"{path}: is not what was written: damaged, or edited by hand. If you edited it, take "
            "'sha256' out of it."
        )
    return value


def _hash(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True))
