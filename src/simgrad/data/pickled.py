"""Published vocabularies are pickles of a class. Read them without running anything from them.

Only an empty stand-in for `vocab.Vocabulary` and plain containers can be named (`core/pickles.py`);
anything else is refused before it is looked up. Containers can be made empty only: a call with
arguments could multiply what is in the file.
"""

import io
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.pickles import LARGEST, Call, Machine, RefusedName

_CONTAINERS: dict[str, type] = {
    "dict": dict,
    "list": list,
    "str": str,
    "int": int,
    "object": object,
    "unicode": str,  # Python 2
    "long": int,
}


class _Inert:
    """Stands in for vocab.Vocabulary: holds attributes, has no behaviour."""


def read_pickled_vocabulary(path: Path) -> dict[str, Any]:
    """The attributes of a pickled vocabulary, written by Python 2 or 3."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path}: too large for a vocabulary.")
    try:
        data = path.read_bytes()
        value = Machine(_named, _build).load(io.BytesIO(data), len(data))
    except RefusedName as refused:
        raise InputError(
            f"{path}: wants to load '{str(refused)[:120]}', which a vocabulary does not need; "
            "not read."
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise InputError(f"{path}: not a readable pickle ({str(error)[:120]}).") from None
    attributes = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        raise InputError(f"{path}: holds a {type(value).__name__}, not a vocabulary.")
    return attributes


def _named(name: str) -> Call:
    module, _, own = name.rpartition(".")
    if name in {"vocab.Vocabulary", "__main__.Vocabulary"}:
        return Call(_Inert)
    if module in {"__builtin__", "builtins"} and own in _CONTAINERS:
        return Call(_empty(own))
    if name == "collections.defaultdict":
        return Call(lambda *_: {})
    if name in {"copy_reg._reconstructor", "copyreg._reconstructor"}:
        return Call(lambda *_: _Inert())  # how Python 2 made an object of a class
    raise RefusedName(name)


def _empty(name: str) -> Any:
    def make(*arguments: object) -> object:
        if arguments:
            raise RefusedName(f"{name}(...)")
        return _CONTAINERS[name]()

    return make


def _build(made: Any, state: Any) -> None:
    if not isinstance(made, _Inert) or not isinstance(state, dict):
        raise ValueError("attributes for what has none")
    made.__dict__.update(state)
