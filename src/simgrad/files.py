"""Files that are whole or absent: atomic writes, safe reads, locks, hashes."""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from simgrad.errors import InputError


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary path in the same folder that takes the place of `path` if the block succeeds."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes files private; give them the mode that open() would have.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """Open `path` for text that appears whole or not at all."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
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


@contextlib.contextmanager
def lock(path: str | Path, *, wait: bool = True, what: str = "it") -> Iterator[None]:
    """Hold an exclusive lock, released by the system if this process dies."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(
                f"another process is working on {what} (lock {path}): wait for it, or stop it."
            ) from None
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def sha256(*parts: bytes | str | Path) -> str:
    """One hash over byte strings, texts and the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with open(part, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            digest.update(part if isinstance(part, bytes) else part.encode())
    return digest.hexdigest()
