"""Reading files that are pickles inside, as tensors and plain data only.

torch's own restricted unpickler does the work: it builds tensors, containers, numbers and texts,
and refuses everything else before it could run. Before it starts, the pickle is looked through
without running it: it may name no more than what published checkpoints are made of, and it may ask
for no more memory than its file holds (a file of 279 bytes can ask for gigabytes by calling
`bytearray`, or by being packed).
"""

import argparse
import mmap
import pickletools
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError

_UNREADABLE = "{}: not a readable checkpoint: it is damaged, or not a file that torch.save wrote."
# What a checkpoint is made of. None of these makes more of its arguments than they are.
_NAMES = re.compile(
    r"collections\.OrderedDict|argparse\.Namespace|_codecs\.encode"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|parameter)"
    r"|torch\.(cuda\.)?(Float|Double|Half|BFloat16|Byte|Char|Short|Int|Long|Bool)Storage"
    r"|torch\.(Size|device|float\d+|bfloat16|int\d+|uint8|bool)"
    r"|numpy\.dtype|numpy\.(_?core)\.multiarray\.scalar|(__builtin__|builtins)\.set"
)
_FORMATS = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "b1": "?", "u1": "B"}
# A file before 2020 is five pickles one after another, and then its numbers.
_OLD_PICKLES = 5
# Weights that are shared lie in a file once; a model has a few of them at most.
_SHARED = 4


class _Kind:
    """Stands in for numpy.dtype, which could be of any size."""

    def __init__(self, name: str, *_: Any) -> None:
        self.code = _FORMATS[name]
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] == ">" else "<"


def _number(kind: _Kind, data: bytes) -> float | int | bool:
    """Stands in for the function that makes numpy's numbers."""
    return struct.unpack(kind.order + kind.code, data)[0]  # type: ignore[no-any-return]


# numpy moved that function; files have the old name or the new one.
_STAND_INS: list[Any] = [
    argparse.Namespace,
    (_Kind, "numpy.dtype"),
    (_number, "numpy.core.multiarray.scalar"),
    (_number, "numpy._core.multiarray.scalar"),
]


def read_tensors(path: str | Path) -> Any:
    """The contents of a `.pth`, `.pth.tar`, `.pt` or `.bin` file, on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    try:
        for name in _names(path):
            if not _NAMES.fullmatch(name):
                raise InputError(
                    f"{path}: refused. Beside tensors and plain data it asks for '{name[:80]}', "
                    "which could run code or take any amount of memory; a published checkpoint "
                    "needs nothing of the kind."
                )
        with torch.serialization.safe_globals(_STAND_INS):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception:  # a damaged file makes the unpickler raise nearly anything
        raise InputError(_UNREADABLE.format(path)) from None
    _refuse_growth(content, path)
    return content


def _names(path: Path) -> Iterator[str]:
    """Every name that the pickles of a file would look up, without running them."""
    if zipfile.is_zipfile(path):
        yield from _names_in(_packed_pickle(path), 1)
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        yield from _names_in(view, _OLD_PICKLES)


def _packed_pickle(path: Path) -> bytes:
    """The pickle of a zip file; nothing in it may be larger than it lies there."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise InputError(f"{path}: refused. Unpacked it would be larger than the file.")
        names = [entry.filename.lower() for entry in entries]
        pickles = [entry for entry in entries if entry.filename.lower().endswith("/data.pkl")]
        if len(set(names)) != len(names) or len(pickles) != 1:
            raise InputError(_UNREADABLE.format(path))
        return archive.read(pickles[0])


def _names_in(pickles: Any, count: int) -> Iterator[str]:
    for _ in range(count):
        for opcode, argument, _ in pickletools.genops(pickles):
            if opcode.name == "GLOBAL":
                yield str(argument).replace(" ", ".")


def _refuse_growth(content: Any, path: Path) -> None:
    """A tensor can repeat one number without end, and a dictionary one tensor."""
    size, total = path.stat().st_size, 0
    waiting, seen = [content], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            asked = value.numel() * value.element_size()
            total += asked
            if asked > value.untyped_storage().nbytes() or total > _SHARED * size:
                raise InputError(f"{path}: refused. Its tensors are larger than the file.")
        elif id(value) not in seen:
            seen.add(id(value))
            value = vars(value) if isinstance(value, argparse.Namespace) else value
            waiting += list(value.values()) if isinstance(value, dict) else []
            waiting += list(value) if isinstance(value, list | tuple | set) else []
