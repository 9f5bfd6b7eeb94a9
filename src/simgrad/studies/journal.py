"""Optuna's journal in a study's folder: one line for everything that happened in a search.

Whoever touches it holds the search's lock.
"""

import json
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import refuse_link, writing

JOURNAL = "journal.log"


def open_journal(path: Path) -> Any:
    """The journal as Optuna's storage."""
    optuna = optuna_or_say()
    _require_journal(path)
    backend = optuna.storages.journal.JournalFileBackend(str(path), _NoLock())
    return optuna.storages.JournalStorage(backend)


def mend(path: Path) -> None:
    """Cut off a last line that a kill has left half-written."""
    with writing(path):
        refuse_link(path)
    if not path.is_file():
        return
    with open(path, "rb+") as file:
        if not file.seek(0, 2) or file.seek(-1, 2) < 0 or file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _require_journal(path: Path) -> None:
    """Refuse a journal that was damaged, before Optuna stumbles over it."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            whole = isinstance(json.loads(line)["op_code"], int)
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise InputError(
                f"{path}, line {number}: damaged: it is not what a search writes. Copy the file "
                "again; without it, begin the study again with another --output."
            )


class _NoLock:
    """Optuna's own locks outlive a killed holder; ours is held whenever the journal is touched."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def optuna_or_say() -> Any:
    """The package, asked for where it is needed: it is an extra."""
    try:
        import optuna
    except ImportError:
        raise InputError(
            "a tuned study needs a package that is not installed: pip install 'simgrad[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
