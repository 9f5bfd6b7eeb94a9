"""Published vocabularies are pickles of a class. Read them without running anything from them.

A pickle names classes and calls them. Here only an empty stand-in for `vocab.Vocabulary` and
plain containers can be named; anything else is refused before it is looked up. Containers can be
made empty only: a call with arguments could multiply what is in the file.
"""

import io
import pickle
import pickletools
from collections import defaultdict
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError

_LARGEST = 16 << 20  # published vocabularies are below 1 MB
_CONTAINERS: dict[str, type] = {
    "dict": dict,
    "list": list,
    "str": str,
    "int": int,
    "object": object,
    "unicode": str,  # Python 2
    "long": int,
}
# Opcodes that number an object; the reader makes room for all numbers below it at once.
_NUMBERING = {"PUT", "BINPUT", "LONG_BINPUT"}


def read_pickled_vocabulary(path: Path) -> dict[str, Any]:
    """The attributes of a pickled vocabulary, written by Python 2 or 3."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    if path.stat().st_size > _LARGEST:
        raise InputError(f"{path}: too large for a vocabulary.")
    try:
        data = path.read_bytes()
        _refuse_absurd_numbers(data)
        value = _reader(io.BytesIO(data)).load()
    except _Refused as refused:
        raise InputError(
            f"{path}: wants to load '{refused}', which a vocabulary does not need; not read."
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise InputError(f"{path}: not a readable pickle ({str(error)[:120]}).") from None
    attributes = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        raise InputError(f"{path}: holds a {type(value).__name__}, not a vocabulary.")
    return attributes


class _Refused(Exception):
    """The pickle names something that is not allowed."""


def _refuse_absurd_numbers(data: bytes) -> None:
    """A file of nine bytes could ask for gigabytes; none has more objects than bytes."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _NUMBERING and not 0 <= int(argument or 0) <= len(data):
            raise ValueError(f"an object is numbered {argument}")


def _reader(file: Any) -> pickle.Unpickler:
    # Made afresh for each file: whatever a pickle does to these, the next one does not see.
    class Inert:
        """Stands in for vocab.Vocabulary: holds attributes, has no behaviour."""

        def __call__(self, word: str) -> None:
            return None

    def empty(name: str) -> Any:
        def make(*arguments: object) -> object:
            if arguments:
                raise _Refused(f"{name}(...)")
            return _CONTAINERS[name]()

        return make

    def reconstruct(cls: type, base: type, state: object) -> Inert:
        """How Python 2 made an object of a class; only the stand-in can be made."""
        return Inert()

    class Restricted(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) in {("vocab", "Vocabulary"), ("__main__", "Vocabulary")}:
                return Inert
            if module in {"__builtin__", "builtins"} and name in _CONTAINERS:
                return empty(name)
            if (module, name) == ("collections", "defaultdict"):
                return lambda factory=None: defaultdict(factory)
            if module in {"copy_reg", "copyreg"} and name == "_reconstructor":
                return reconstruct
            raise _Refused(f"{module}.{name}"[:120])

    return Restricted(file, encoding="utf-8", errors="strict")
