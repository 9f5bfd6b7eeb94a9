"""Derived files: what can be made again, kept with what it was made from and a hash of its content.

An array NAME.npy has NAME.json beside it. One that does not fit what is asked for, or is not what
was written (cut off, overwritten, a flipped bit), counts as not there, and is made again. What
belongs to no folder of the user's lies in the cache.

Hashes of contents are equal for a copy, and another after a change:

- Up to 256 MiB every byte counts. Of a larger file its size and 256 pages spread over it count; of
  many files that are larger together, the size of each and three pages of it.
- `verify` counts every byte whatever it takes.
- Hashes are kept in the cache under path, size and times of change, so that a file which nobody
  touched is not read again. `cp -p`, `rsync` and others set the time of a file's content; that of
  its entry (ctime) is the system's, so both count. They are part of that key alone, not of a
  hash.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import (
    atomic_path,
    atomic_write,
    lock,
    open_array,
    read_json,
    sha256,
    write_json,
)


def cache_folder() -> Path:
    """$SIMGRAD_CACHE, or the system's own place (on Linux ~/.cache/simgrad)."""
    chosen = os.environ.get("SIMGRAD_CACHE")
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_cache_path("simgrad", appauthor=False)


WHOLE = 256 << 20  # bytes that are read in full
_PAGE = 4096
_PAGES, _PAGES_OF_MANY = 256, 3
_FRESH = 2.0  # seconds in which a file may change again without a new time of change
_READERS = 8  # threads: of many small files most of the time is waiting


def content_hash(path: str | Path, *, verify: bool = False) -> str:
    """The hash of one file's content."""
    return contents_hash([path], verify=verify)


def contents_hash(paths: Sequence[str | Path], *, verify: bool = False) -> str:
    """One hash of what these files hold, in this order, whatever they are called.

    A file that is not there counts as such.
    """
    files = [_File(path) for path in paths]
    stamp = sha256("\n".join([file.stamp() for file in files]))
    known = None if verify else _known(stamp)
    if known is not None:
        return known
    whole = verify or sum(file.size for file in files) <= WHOLE
    pages = None if whole else _PAGES if len(files) == 1 else _PAGES_OF_MANY
    with ThreadPoolExecutor(min(_READERS, len(files) or 1)) as pool:
        found = sha256(*pool.map(lambda file: file.digest(pages), files))
    # Whole and sampled hashes of the same bytes differ: what was verified is not kept for others.
    if not verify and time.time() - max((file.changed for file in files), default=0) / 1e9 > _FRESH:
        _keep(stamp, found)
    return found


def settled(paths: Sequence[str | Path]) -> str | None:
    """One hash of where these files lie, how large they are and when they changed.

    None: one of them changed so lately that its next change might have the same time.
    """
    files = [_File(path) for path in paths]
    newest = max((max(file.changed, file.entry) for file in files), default=0)
    if time.time() - newest / 1e9 <= _FRESH:
        return None
    return sha256("\n".join([file.stamp() for file in files]))


class _File:
    """A file as it is now."""

    __slots__ = ("changed", "entry", "path", "size")

    def __init__(self, path: str | Path) -> None:
        text = os.fspath(path)
        self.path = text if os.path.isabs(text) else os.path.abspath(text)
        try:
            told = os.stat(self.path)
        except OSError:
            self.size, self.changed, self.entry = -1, 0, 0
        else:
            self.size, self.changed, self.entry = told.st_size, told.st_mtime_ns, told.st_ctime_ns

    def stamp(self) -> str:
        return f"{self.path}\0{self.size}\0{self.changed}\0{self.entry}"

    def digest(self, pages: int | None) -> bytes:
        """A hash of all bytes, or of the size and so many pages."""
        if self.size < 0:
            return b"there is no such file"
        try:
            with open(self.path, "rb") as file:
                if pages is None or self.size <= pages * _PAGE:
                    return hashlib.file_digest(file, "sha256").digest()
                digest = hashlib.sha256(f"{self.size} in pages".encode())
                for number in range(pages):
                    file.seek((self.size - _PAGE) * number // (pages - 1))
                    digest.update(file.read(_PAGE))
                return digest.digest()
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror}).") from None


def _place(stamp: str) -> Path:
    return cache_folder() / "hashes" / stamp[:2] / stamp[2:34]


def _known(stamp: str) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        found, check = _place(stamp).read_text(encoding="ascii").split()
        if check == sha256(stamp, found):  # else damaged, or half of another's name
            return found
    return None


def _keep(stamp: str, found: str) -> None:
    with contextlib.suppress(OSError):  # no cache: the file is read again next time
        with atomic_write(_place(stamp)) as file:
            file.write(f"{found} {sha256(stamp, found)}\n")


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


# Several arrays that belong together: one JSON file, written last, has an entry for each.


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
    return _described(path, array)


def _described(path: Path, array: npt.NDArray[Any]) -> dict[str, Any]:
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
    path: Path, made_from: dict[str, str], write: Callable[[Path], object]
) -> npt.NDArray[Any]:
    """The array that `write` puts into a file, made once; OSError where there is no place."""

    def ready() -> npt.NDArray[Any] | None:
        try:
            return read_array(path, read_kept(path.with_suffix(".json"), made_from))
        except (InputError, OSError, ValueError):
            return None  # none yet, or damaged

    known = ready()
    if known is None:
        with lock(path.with_suffix(".lock"), what=str(path)):
            known = ready()  # another process may have made it meanwhile
            if known is None:
                path.unlink(missing_ok=True)
                write(path)
                known = open_array(path)
                write_kept(path.with_suffix(".json"), _described(path, known), made_from)
    return known


def computed_once(
    path: Path, made_from: dict[str, str], compute: Callable[[], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """An array that is kept, if there is a place to keep it."""
    try:
        return kept_array(path, made_from, lambda at: write_array(at, compute()))
    except OSError:
        return compute()
