"""What can be made again: kept with what it was made from and a hash of its content.

An array NAME.npy has NAME.json beside it. One that does not fit what is asked for, or is not what
was written (cut off, overwritten, a flipped bit), counts as not there, and is made again.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, lock, open_array, read_json, sha256, write_json
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


# Several arrays that belong together: each is told of in one JSON file, written last.


class Damaged(InputError):
    """A derived file is not what was written, or belongs to something else."""


def write_kept(path: Path, value: dict[str, Any], made_from: dict[str, str]) -> None:
    """JSON with what it was made from, and its own checksum."""
    write_checked(path, {"made_from": made_from, **value})


def read_kept(path: Path, made_from: dict[str, str]) -> dict[str, Any]:
    """What `write_kept` wrote, if it was made from the same."""
    try:
        value = read_checked(path)
    except OSError as error:
        raise Damaged(f"{path}: {error}.") from None
    if not isinstance(value, dict) or value.pop("made_from", None) != made_from:
        raise Damaged(f"{path}: it was made from something else.")
    return value


def write_array(path: Path, array: npt.NDArray[Any]) -> dict[str, Any]:
    """A .npy file; returns what `read_array` checks it by."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)
    return {"shape": list(array.shape), "dtype": str(array.dtype), "content": content_hash(path)}


def read_array(path: Path, told: dict[str, Any]) -> npt.NDArray[Any]:
    """The array, memory-mapped, if it is the one that was written."""
    if content_hash(path) != told.get("content"):
        raise Damaged(f"{path}: its checksum does not fit.")
    # Copy-on-write: torch wants memory it may write to, the file stays as it is.
    array: npt.NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    if [list(array.shape), str(array.dtype)] != [told.get("shape"), told.get("dtype")]:
        raise Damaged(f"{path}: it has another shape than was written.")
    return array


def kept_array(
    path: Path, made_from: dict[str, str], compute: Callable[[], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """An array that is computed once and kept, if there is a place to keep it."""

    def ready() -> npt.NDArray[Any] | None:
        try:
            return read_array(path, read_kept(path.with_suffix(".json"), made_from))
        except (InputError, OSError, ValueError):
            return None  # none yet, or damaged

    known = ready()
    if known is not None:
        return known
    try:
        with lock(path.with_suffix(".lock"), what=str(path)):
            known = ready()
            if known is None:
                known = compute()
                write_kept(path.with_suffix(".json"), write_array(path, known), made_from)
            return known
    except OSError:  # no place to keep it
        return compute()
