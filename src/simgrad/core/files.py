"""Files that are whole or absent: atomic writes, safe reads, hashes, and lines of JSON that carry a
checksum of themselves, so that a damaged one is noticed and the others stay.
"""

import contextlib
import errno
import glob
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED

import numpy as np
import numpy.typing as npt
from filelock import lock_descriptor

from simgrad.core.errors import InputError
from simgrad.core.errors import refuse_link as refuse_link
from simgrad.core.errors import writing as writing
from simgrad.core.locks import held as held
from simgrad.core.locks import lock as lock
from simgrad.core.locks import seems_held as seems_held

# There an open file can be neither renamed nor removed, and a lock keeps others from its bytes.
_WINDOWS = os.name == "nt"


# An archive may unpack to so many bytes, or to so many times its size if that is more.
_UNPACKED, _TIMES = 1 << 30, 20


def unpacked_limit(path: Path) -> int:
    """How many bytes a packed file may become in memory."""
    return max(_UNPACKED, _TIMES * path.stat().st_size)


def _file_mode() -> int:
    """The mode that open() gives a new file; asked once, because asking means setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


_MODE = _file_mode()


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


def require_file(path: str | Path) -> Path:
    """Refuse what is no plain file: reading a pipe or a device might never end."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file.")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise InputError(f"{path}: {what}, where a file is needed.")
    return path


def read_json(path: str | Path) -> Any:
    """Read JSON; an error names the file and the line."""
    path = require_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
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
    path = require_file(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header makes numpy raise tokenizer errors and others
        raise InputError(f"{path}: not a readable .npy array ({str(error)[:120]}).") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: an .npz archive where a single .npy array is needed.")
    return array


def read_npz(path: str | Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """The arrays of an .npz archive, or those of some names; never unpickles."""
    path = require_file(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            members = archive.zip.infolist()
            # These two end where the directory says; others unpack whatever there is.
            if any(m.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for m in members):
                raise ValueError("packed in a way that numpy does not write")
            # Of a bomb, a few megabytes that unpack to all memory, nothing is unpacked.
            size = sum(member.file_size for member in members)
            if size > unpacked_limit(path):
                raise ValueError(f"it would unpack to {size / 2**30:,.1f} GiB")
            return {n: archive[n] for n in archive.files if names is None or n in names}
    except Exception as error:  # a damaged archive makes zipfile, zlib and numpy raise anything
        raise InputError(f"{path}: not a readable .npz archive ({str(error)[:120]}).") from None


def new_array(path: str | Path, shape: tuple[int, ...], dtype: type) -> "np.memmap[Any, Any]":
    """A .npy file to fill through memory; its space is taken at once, so that a full disk is told
    now and does not end the process by a signal later."""
    with writing(path):
        refuse_link(path)
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


_CHECKSUM = "checksum"


def to_line(values: dict[str, Any]) -> str:
    """One line, with its end."""
    told = {**values, _CHECKSUM: checksum(values)}
    return json.dumps(told, ensure_ascii=False) + "\n"


def from_line(line: str | bytes, where: str) -> dict[str, Any]:
    """What a line holds; `where` it stands, for messages."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise InputError(f"{where}: damaged: not JSON.") from None
    if not isinstance(told, dict):
        raise InputError(f"{where}: damaged: it holds no names and values.")
    expected = told.pop(_CHECKSUM, None)
    if expected is not None and expected != checksum(told):
        raise InputError(f"{where}: damaged: it is not what was written.")
    return told


def checksum(values: dict[str, Any]) -> int:
    """The same for the same values, in whatever order and encoding they stand."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())
