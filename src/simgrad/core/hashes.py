"""What files hold, as a hash: equal for a copy, another after a change.

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
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simgrad.core.cache import cache_folder
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write, sha256

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
    with contextlib.suppress(OSError):  # no place for it: read again next time
        with atomic_write(_place(stamp)) as file:
            file.write(f"{found} {sha256(stamp, found)}\n")
