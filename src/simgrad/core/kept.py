"""Derived files that can be trusted: what they were made from, and their content, are checked.

What is kept here can always be made again. So reading either gives what was written, or says
`Damaged`, and the caller makes it anew.
"""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, read_json, write_json

Array = npt.NDArray[Any]
_SUM = "sha256"
_WHOLE = 256 << 20  # bytes that are hashed whole; larger files by samples
_PAGE = 1 << 16
_PAGES = 1024


class Damaged(InputError):
    """A derived file is not what was written, or belongs to something else."""


def write_kept(path: Path, value: dict[str, Any], made_from: dict[str, str]) -> None:
    """JSON with what it was made from, and its own checksum."""
    whole = {"made_from": made_from, **value}
    write_json(path, {**whole, _SUM: _checksum(whole)})


def read_kept(path: Path, made_from: dict[str, str]) -> dict[str, Any]:
    """What `write_kept` wrote, if it was made from the same."""
    try:
        value = read_json(path)
    except OSError as error:
        raise Damaged(f"{path}: {error}.") from None
    if not isinstance(value, dict) or value.pop(_SUM, None) != _checksum(value):
        raise Damaged(f"{path}: its checksum does not fit.")
    if value.pop("made_from") != made_from:
        raise Damaged(f"{path}: it was made from something else.")
    return value


def _checksum(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_array(path: Path, array: Array) -> dict[str, Any]:
    """A .npy file; returns what `read_array` checks it by."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)
    return {"shape": list(array.shape), "dtype": str(array.dtype), _SUM: content_hash(path)}


def read_array(path: Path, told: dict[str, Any]) -> Array:
    """The array, memory-mapped, if it is the one that was written."""
    if content_hash(path) != told.get(_SUM):
        raise Damaged(f"{path}: its checksum does not fit.")
    # Copy-on-write: torch wants memory it may write to, the file stays as it is.
    array: Array = np.load(path, mmap_mode="c", allow_pickle=False)
    if [list(array.shape), str(array.dtype)] != [told.get("shape"), told.get("dtype")]:
        raise Damaged(f"{path}: it has another shape than was written.")
    return array


def content_hash(path: Path) -> str:
    """A file's SHA-256; of one above 256 MiB its size and a thousand pages all over it."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _WHOLE:
                return hashlib.file_digest(file, "sha256").hexdigest()
            digest = hashlib.sha256(str(size).encode())
            for place in range(_PAGES):
                file.seek(math.floor(place * (size - _PAGE) / (_PAGES - 1)))
                digest.update(file.read(_PAGE))
            return digest.hexdigest()
    except OSError as error:
        raise Damaged(f"{path}: {error}.") from None
