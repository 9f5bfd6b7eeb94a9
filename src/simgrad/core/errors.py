"""Errors that a user can mend, and why something cannot be written, in plain words."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path


class InputError(ValueError):
    """Something given to simgrad does not fit.

    The message names the file, row or option and says what to do about it; the command line
    prints it without a traceback and exits with 2.
    """


class DiskError(InputError, OSError):
    """A file cannot be written: no space, no permission, a read-only or failing disk."""


class NoLocks(DiskError):
    """The file system does not support locks, so nobody can be kept out."""


class Busy(InputError):
    """Another process holds the lock of what was asked for; wait for it, or take something else."""


class NotFinite(InputError):
    """Numbers hold NaN or infinity; while a model is trained, it has diverged."""


class OutOfMemory(InputError):
    """There is no room for it now; there may be when others are done."""


# What a disk, not a program, is to blame for; and what a person can do about it.
_DISK = {
    errno.ENOSPC: "no space left on the disk; make room",
    errno.EDQUOT: "your share of the disk is used up; make room",
    errno.EFBIG: "the file would be larger than is allowed here",
    errno.EROFS: "the disk is read-only; choose another folder",
    errno.EACCES: "no permission to write there; choose another folder",
    errno.EPERM: "no permission to write there; choose another folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a file or a broken link is where a folder is needed; choose another folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EIO: "the disk reports an error",
    errno.ELOOP: "a link leads elsewhere, or in a circle; remove it",
}


def refuse_link(path: str | Path) -> None:
    """Before a file is changed in place: in a folder from somebody else, a link of its name may
    lead to any file of this user. What is written whole takes the link's place instead."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Say in plain words why `path` cannot be written; what was there before stays whole."""
    try:
        yield
    except DiskError:
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        # safetensors has an exception of its own, with the system's number in its text.
        told = re.search(r"\(os error (\d+)\)", str(error)) if number is None else None
        if re.fullmatch(r"\d+ requested and \d+ written", str(error)):  # numpy's, without a number
            number = errno.ENOSPC
        reason = _DISK.get(int(told[1]) if told else number or 0)
        if reason is None:
            raise
        raise DiskError(f"{path}: cannot be written: {reason}, then resume.") from error
