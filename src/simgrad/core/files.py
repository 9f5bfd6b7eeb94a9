"""Files that are whole or absent: atomic writes, safe reads, locks, hashes."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from filelock import lock_descriptor, unlock_descriptor

from simgrad.core.errors import Busy, DiskError, InputError, NoLocks

# There an open file can be neither renamed nor removed, and a lock keeps others from its bytes.
_WINDOWS = os.name == "nt"

# What a disk, not a program, is to blame for; and what a person can do about it.
_DISK = {
    errno.ENOSPC: "no space left on the disk; make room",
    errno.EDQUOT: "your share of the disk is used up; make room",
    errno.EFBIG: "the file would be larger than is allowed here",
    errno.EROFS: "the disk is read-only; choose another folder",
    errno.EACCES: "no permission to write there; choose another folder",
    errno.EPERM: "no permission to write there; choose another folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EIO: "the disk reports an error",
}


def _file_mode() -> int:
    """The mode that open() gives a new file; asked once, because asking means setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


_MODE = _file_mode()


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
        reason = _DISK.get(int(told[1]) if told else number or 0)
        if reason is None:
            raise
        raise DiskError(f"{path}: cannot be written: {reason}, then go on.") from error


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary path in the same folder that takes the place of `path` if the block succeeds."""
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        handle, temporary = _own_temporary(path)
        try:
            yield temporary
            with open(temporary, "rb+") as written:
                os.fsync(written.fileno())
            os.chmod(temporary, _MODE)  # mkstemp makes files private
            if _WINDOWS:
                handle = _closed(handle)
            os.replace(temporary, path)
        finally:
            if _WINDOWS:
                handle = _closed(handle)
            temporary.unlink(missing_ok=True)
            _closed(handle)


def _closed(handle: int) -> int:
    """Close a file handle once; -1 stands for one that is closed."""
    if handle >= 0:
        os.close(handle)
    return -1


def _own_temporary(path: Path) -> tuple[int, Path]:
    """A temporary file, locked as long as its handle is open: its writer is alive."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        if _WINDOWS:  # being open is lock enough
            return handle, Path(name)
        with contextlib.suppress(OSError):  # without locks it is never swept
            lock_descriptor(handle)
        if os.fstat(handle).st_nlink:  # else somebody swept it before it was locked
            return handle, Path(name)
        os.close(handle)


def sweep(folder: str | Path, name: str = "*") -> None:
    """Remove temporary files whose writer was killed, of one file or of a whole folder."""
    for left in Path(folder).glob(f".{name if name == '*' else glob.escape(name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if _WINDOWS:
                left.unlink(missing_ok=True)
                continue
            with open(left, "rb+") as file:
                if lock_descriptor(file.fileno(), blocking=False):
                    left.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """Open `path` for text that appears whole or not at all."""
    # Halves of characters, which JSON can hold and UTF-8 cannot, are written as JSON writes them.
    half = "backslashreplace"
    with atomic_path(path) as temporary:
        with open(temporary, "w", encoding="utf-8", errors=half) as file:
            yield file


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON atomically."""
    with atomic_write(path) as file:
        json.dump(value, file, indent=1, ensure_ascii=False, allow_nan=True)
        file.write("\n")


def read_json(path: str | Path) -> Any:
    """Read JSON; an error names the file and the line."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON: {error.msg}.") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{path}: not JSON that can be read ({str(error)[:80]}).") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply to be read.") from None


def open_array(path: str | Path) -> npt.NDArray[Any]:
    """A .npy file, memory-mapped; never unpickles."""
    path = Path(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except Exception as error:  # a damaged header makes numpy raise tokenizer errors and others
        raise InputError(f"{path}: not a readable .npy array ({str(error)[:120]}).") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: an .npz archive where a single .npy array is needed.")
    return array


def new_array(path: str | Path, shape: tuple[int, ...], dtype: type) -> "np.memmap[Any, Any]":
    """A .npy file to fill through memory; its space is taken at once, so that a full disk is told
    now and does not end the process by a signal later."""
    with writing(path):
        array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        with open(path, "rb+") as file:
            _take_space(file, os.path.getsize(path))
    return array


def _take_space(file: IO[bytes], size: int) -> None:
    """Have the disk set so many bytes aside: by writing them where there is no other way."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}:
                raise
    block = bytes(1 << 20)
    file.seek(0)
    head = file.read(len(block))  # what the array wrote about itself
    file.seek(0)
    file.write(head)
    for start in range(len(head), size, len(block)):
        file.write(block[: size - start])


# -- locks


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


def sha256(*parts: bytes | str | Path) -> str:
    """One hash over byte strings, texts and the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with open(part, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            # Names of files need not be Unicode.
            digest.update(part if isinstance(part, bytes) else part.encode(errors="surrogatepass"))
    return digest.hexdigest()
