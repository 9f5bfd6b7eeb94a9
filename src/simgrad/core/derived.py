"""Arrays that can be made again: kept with what they were made from and a hash of their content.

NAME.npy has NAME.json beside it. One that does not fit what is asked for, or is not what was
written (cut off, overwritten, a flipped bit), counts as not there, and is made anew.
"""

import contextlib
from pathlib import Path
from typing import Any

import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import open_array, read_json, write_json
from simgrad.core.hashes import content_hash


def seal(path: Path, made_from: str) -> None:
    """Say of an array that is whole on disk what it was made from."""
    content = {"made_from": made_from, "content": content_hash(path)}
    write_json(path.with_suffix(".json"), content)


def open_sealed(path: Path, made_from: str, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """The array, memory-mapped, if it is there, fits and is whole."""
    with contextlib.suppress(InputError, OSError):
        told = read_json(path.with_suffix(".json"))
        if told == {"made_from": made_from, "content": content_hash(path)}:
            array = open_array(path)
            return array if array.shape == shape else None
    return None
