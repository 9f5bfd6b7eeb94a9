"""Locks between processes, by filelock: released by the system when their holder dies."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from filelock import lock_descriptor, unlock_descriptor

from simgrad.core.errors import Busy, NoLocks, refuse_link, writing

_WINDOWS = os.name == "nt"


@contextlib.contextmanager
def lock(path: str | Path, *, wait: bool = True, what: str = "it") -> Iterator[None]:
    """Hold an exclusive lock, released by the system if this process dies.

    `Busy` if another process holds it and `wait` is false.
    """
    handle = _locked(Path(path), wait, what)
    try:
        _write_holder(handle)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
        unlock_descriptor(handle)
        os.close(handle)


def _locked(path: Path, wait: bool, what: str) -> int:
    """A handle that holds the lock."""
    while True:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            refuse_link(path)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take(handle, path, wait, what)
            if _WINDOWS or os.fstat(handle).st_nlink:
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder has removed the file: whoever comes now has a new one


def _take(handle: int, path: Path, wait: bool, what: str) -> None:
    try:
        # Somebody may only be looking, see `held`: a moment later the lock is free.
        for patience in (0.02, 0.02, 0):
            if lock_descriptor(handle, blocking=wait):
                return
            time.sleep(patience)
    except OSError as error:
        raise NoLocks(
            f"{path}: this disk does not support locks ({error.strerror}), so two processes could "
            "write the same files. Use a folder on another disk, or mount this one with locks; for "
            "the cache, set SIMGRAD_CACHE to a folder on a local disk."
        ) from error
    raise Busy(
        f"another process is working on {what} (lock {path}{_holder(handle)}): wait for it, or "
        "stop it."
    )


def _write_holder(handle: int) -> None:
    """Who holds the lock, for the message that others get. The first byte is the lock itself."""
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, f"\n{os.getpid()} on {socket.gethostname()}\n".encode())


def _holder(handle: int) -> str:
    try:
        os.lseek(handle, 1, os.SEEK_SET)
        told = os.read(handle, 200).decode(errors="replace").strip()
    except OSError:
        return ""
    return f", held by process {told}" if told else ""


def seems_held(path: str | Path) -> bool:
    """Whether a holder has put its name there: asked at once, but wrong after a kill."""
    try:
        return os.path.getsize(path) > 0
    except OSError:  # no such file
        return False


def held(path: str | Path) -> bool:
    """Whether some process holds this lock."""
    for patience in (0.01, 0.01, 0):  # somebody else may only be looking, too
        try:
            with _opened_to_look(path) as file:
                if lock_descriptor(file.fileno(), blocking=False):
                    return False
        except OSError:  # no such file: nobody ever did; no locks here: nobody can
            return False
        time.sleep(patience)
    return True


def _opened_to_look(path: str | Path) -> IO[bytes]:
    try:
        return open(path, "rb+")
    except PermissionError:
        return open(path, "rb")  # enough on a local disk
