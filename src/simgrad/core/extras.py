"""Files of a user's own (`--with FILE.py`): imported here, in workers, and again for what used it.

A study or run folder remembers the files it was made with, by path and hash. Whoever opens it later
gets them imported again, if they have not changed. Nothing from a stranger runs that way: only a
file that this user has given to `--with` before, byte for byte, is imported without being named.
"""

import hashlib
import os
import sys
import traceback
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from simgrad.core.derived import cache_folder
from simgrad.core.errors import InputError
from simgrad.core.files import lock, read_json, sha256, write_json

_NAMES = "SIMGRAD_WITH"
_FILE = "with.json"
_imported: dict[str, str] = {}  # absolute path -> hash, in this process
_told: set[str] = set()  # what was said already


class _Read(SourceLoader):
    """Runs bytes that were read once, so that what is hashed is what runs."""

    def __init__(self, path: Path) -> None:
        self.path, self.code = path, path.read_bytes()
        self.hashed = sha256(hashlib.sha256(self.code).digest())  # as that of a path

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: Any) -> bytes:
        if path != str(self.path):
            raise OSError("nothing else is read, no byte code either")
        return self.code

    def run(self) -> None:
        spec = spec_from_loader(f"with_{self.hashed[:16]}", self)
        assert spec is not None
        module = sys.modules[spec.name] = module_from_spec(spec)
        try:
            self.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise


def import_file(path: Path, expected: str | None = None) -> None:
    """Run a file that declares objectives, models, layouts or metrics.

    `expected`: its hash, if it may run only as it was.
    """
    if path.is_dir():
        raise InputError(f"--with {path}: this is a folder; name a Python file.")
    if not path.is_file():
        raise InputError(f"--with {path}: there is no such file.")
    told, path = path, path.resolve()
    if str(path) in _imported:
        return
    read = _Read(path)
    if expected not in (None, read.hashed):
        raise InputError(f"{path} was changed just now, and is not imported.")
    try:
        read.run()
    except Exception as error:  # its own; where it is says more than how it was imported
        raise InputError(f"--with {told}{_where(error, path)}") from error
    _imported[str(path)] = read.hashed
    _trust(read.hashed)
    os.environ[_NAMES] = os.pathsep.join(_imported)


def _where(error: Exception, path: Path) -> str:
    """`, line 3: expected ':'`"""
    if isinstance(error, SyntaxError):
        line = error.lineno if error.filename == str(path) else None
        text = error.msg if line else str(error)
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)
        known = isinstance(error, (InputError, ImportError))
        text = str(error) if known else f"{type(error).__name__}: {error}"
    return f", line {line}: {text}" if line else f": {text}"


def import_extras() -> None:
    """In a worker: import the files that the command was given."""
    for name in filter(None, os.environ.get(_NAMES, "").split(os.pathsep)):
        import_file(Path(name))


def imported() -> list[dict[str, str]]:
    """The files that were imported so far, to be remembered."""
    return [{"path": path, "sha256": hashed} for path, hashed in _imported.items()]


def bring_back(folder: Path, files: list[Any]) -> None:
    """Import again what a study or a run remembers; say so."""
    for file in files:
        told = file if isinstance(file, dict) else {}
        path, hashed = (str(told.get(key)) for key in ("path", "sha256"))
        if path in _told or path in _imported or hashed in _imported.values():
            continue  # a copy of it declares the same names
        _told.add(path)
        problem = _problem(Path(path), hashed)
        if problem is None:
            _say(f"{folder}: importing {path}, with which it was made.")
            import_file(Path(path), hashed)
        else:
            _say(f"{folder}: was made with {path}, {problem}: give it as --with, if it is needed.")


def _problem(path: Path, hashed: str) -> str | None:
    """Why a remembered file is not imported without being asked for."""
    if not path.is_file():
        return "which is gone"
    if sha256(path) != hashed:
        return "which has changed since"
    if hashed not in _trusted():
        return "which nobody has given to --with here"
    return None


def _trusted() -> list[str]:
    """Hashes of the files that this user has run by `--with`."""
    try:
        found = read_json(cache_folder() / _FILE)
    except InputError:
        return []
    return found if isinstance(found, list) else []


def _trust(hashed: str) -> None:
    if hashed in _trusted():
        return
    try:
        with lock(cache_folder() / f".{_FILE}.lock", what=_FILE):
            write_json(cache_folder() / _FILE, [*_trusted(), hashed])
    except OSError:  # no place for it: it must be named each time
        return


def _say(text: str) -> None:
    print(f"simgrad: {text}", file=sys.stderr, flush=True)
