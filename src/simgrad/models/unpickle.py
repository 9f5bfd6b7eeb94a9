"""Reading files that are pickles inside, as tensors and plain data only.

`torch.load(weights_only=True)` runs no code, but takes the time and memory that a file asks for,
and has its own way of finding the pickle in a zip file: who looks before may see other bytes.
So the file is read here, once: by a machine that is bounded in advance (`core/pickles.py`), with
functions that make no more of their arguments than they are, and with tensors that lie in the file
byte by byte.
"""

import argparse
import mmap
import re
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.pickles import (
    LARGEST,
    Call,
    Machine,
    RefusedName,
    TooLarge,
    key_of,
    refuse_repeats,
)

_UNREADABLE = "{}: not a readable checkpoint: it is damaged, or not a file that torch.save wrote."
_STORAGES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16,
    "BFloat16": torch.bfloat16, "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16,
    "Int": torch.int32, "Long": torch.int64, "Bool": torch.bool,
}  # fmt: skip
_STORAGE = re.compile(r"torch\.(?:cuda\.)?(\w+)Storage")
_DTYPE = re.compile(r"torch\.(float\d+|bfloat16|int\d+|uint8|bool)")
_NUMPY = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "b1": "?", "u1": "B"}
_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of a file before 2020
_DIMENSIONS = 64
# Weights that are shared lie in a file once; a model has a few of them at most.
_SHARED = 4


class _Kind:
    """Stands in for numpy.dtype, which could be of any size."""

    def __init__(self, name: str, *_: Any) -> None:
        self.code = _NUMPY[name]
        self.order = "<"


def _number(kind: _Kind, data: bytes) -> float | int | bool:
    """Stands in for the function that makes numpy's numbers."""
    return struct.unpack(kind.order + kind.code, data)[0]  # type: ignore[no-any-return]


def _encoded(text: str, code: str) -> bytes:
    """Bytes, as pickles of Python 3 write them for Python 2; other codes can multiply a text."""
    if code not in ("latin1", "latin-1"):
        raise RefusedName(f"_codecs.encode to {code}")
    return text.encode("latin-1")


def _ordered(items: Any = ()) -> "OrderedDict[Any, Any]":
    return OrderedDict((key_of(key), value) for key, value in items)


def _set(items: Any = ()) -> set[Any]:
    return {key_of(item) for item in items}


def _parameter(data: Tensor, requires_grad: bool, hooks: Any) -> Tensor:
    return torch.nn.Parameter(data, bool(requires_grad))


_CALLS: dict[str, Any] = {
    "collections.OrderedDict": _ordered,
    "argparse.Namespace": argparse.Namespace,
    "_codecs.encode": _encoded,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": torch.Size,
    "torch.device": lambda *told: torch.device(*told),
    "numpy.dtype": _Kind,
    "numpy.core.multiarray.scalar": _number,
    "numpy._core.multiarray.scalar": _number,  # numpy moved it
    "__builtin__.set": _set,
    "builtins.set": _set,
}


def _build(made: Any, state: Any) -> None:
    """Attributes of what was made; nothing else may have any."""
    if isinstance(made, _Kind):
        made.order = ">" if state[1] == ">" else "<"
    elif isinstance(made, argparse.Namespace | OrderedDict) and isinstance(state, dict):
        made.__dict__.update({str(key): value for key, value in state.items()})
    elif not isinstance(made, torch.nn.Parameter):
        raise ValueError("attributes for what has none")


class _Tensors:
    """The tensors of one file: where they are made, and how large they may be in all."""

    def __init__(self, size: int) -> None:
        self.size = size  # of the file
        self.stored: dict[str, Tensor] = {}  # one-dimensional, by key
        self._bytes = 0

    def named(self, name: str) -> Any:
        """What a checkpoint is made of, and nothing else."""
        if name in ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"):
            return Call(self._rebuild)
        if name in _CALLS:
            return Call(_CALLS[name])
        if (found := _STORAGE.fullmatch(name)) and found[1] in _STORAGES:
            return _STORAGES[found[1]]
        dtype = getattr(torch, name[6:], None) if _DTYPE.fullmatch(name) else None
        if isinstance(dtype, torch.dtype):
            return dtype
        raise RefusedName(name)

    def storage(self, told: Any) -> Tensor:
        """Room for a storage, which is filled when its bytes are read."""
        word, kind, key, _, count, *view = told
        if word != "storage" or not isinstance(kind, torch.dtype) or not isinstance(count, int):
            raise ValueError("a storage of another form")
        key = str(key)
        if key not in self.stored:
            self._bytes += count * kind.itemsize
            if count < 0 or self._bytes > self.size:
                raise TooLarge
            self.stored[key] = torch.empty(count, dtype=kind)
        stored = self.stored[key]
        if stored.dtype != kind:
            raise ValueError("a storage of two kinds")
        if view and view[0] is not None:  # the files of 2017
            _, start, length = view[0]
            return stored.narrow(0, start, length)
        return stored

    def _rebuild(self, stored: Any, start: int, shape: Any, strides: Any, *_: Any) -> Tensor:
        if not isinstance(stored, Tensor) or stored.dim() != 1 or len(shape) > _DIMENSIONS:
            raise ValueError("a tensor of another form")
        if len(shape) != len(strides) or min((start, *shape, *strides)) < 0:
            raise ValueError("a tensor of another form")
        count = 1
        for side in shape:
            count *= side
        if count > stored.numel():
            raise TooLarge
        return stored.as_strided(tuple(shape), tuple(strides), stored.storage_offset() + start)


def read_tensors(path: str | Path) -> Any:
    """The contents of a `.pth`, `.pth.tar`, `.pt` or `.bin` file, on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    tensors = _Tensors(path.stat().st_size)
    machine = Machine(tensors.named, _build, tensors.storage)
    try:
        with path.open("rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
        content = (_read_zip if zipped else _read_old)(path, machine, tensors)
        refuse_repeats(content, _SHARED * tensors.size, _bytes_of)  # one tensor under many names
        return content
    except InputError:
        raise
    except RefusedName as refused:
        raise InputError(
            f"{path}: refused. Beside tensors and plain data it asks for '{str(refused)[:80]}', "
            "which could run code or take any amount of memory; a published checkpoint "
            "needs nothing of the kind."
        ) from None
    except TooLarge:
        raise InputError(f"{path}: refused. Its tensors are larger than the file.") from None
    except Exception:  # a damaged file makes readers raise nearly anything
        raise InputError(_UNREADABLE.format(path)) from None


def _bytes_of(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0


def _read_zip(path: Path, machine: Machine, tensors: _Tensors) -> Any:
    """A zip file, nothing in which may be larger than it lies there."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if packed or sum(entry.file_size for entry in entries) > tensors.size:
            raise InputError(f"{path}: refused. Unpacked it would be larger than the file.")
        names = [entry.filename.lower() for entry in entries]
        pickles = [entry for entry in entries if entry.filename.lower().endswith("/data.pkl")]
        if len(set(names)) != len(names) or len(pickles) != 1:
            raise ValueError("not one pickle")
        if min(entry.header_offset for entry in entries):  # something stands before it
            raise ValueError("more than one file")
        folder, size = pickles[0].filename[: -len("data.pkl")], pickles[0].file_size
        if f"{folder}byteorder" in archive.namelist():
            _refuse_other_order(archive.read(f"{folder}byteorder") == b"little")
        with archive.open(pickles[0]) as stream:
            content = machine.load(stream, size)
        for key, stored in tensors.stored.items():
            entry = archive.getinfo(f"{folder}data/{key}")
            if entry.file_size != stored.numel() * stored.element_size():
                raise ValueError("a storage of another size")
            with archive.open(entry) as stream:
                _fill(stored, stream)
    return content


def _read_old(path: Path, machine: Machine, tensors: _Tensors) -> Any:
    """A file before 2020: five pickles one after another, and then its numbers."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        magic, _, system = (machine.load(view, LARGEST) for _ in range(3))
        if magic != _MAGIC:
            raise ValueError("another kind of file")
        _refuse_other_order(system["little_endian"] is True)
        content, keys = machine.load(view, tensors.size), machine.load(view, tensors.size)
        if sorted(map(str, keys)) != sorted(tensors.stored):
            raise ValueError("other storages than it announces")
        for key in keys:
            stored = tensors.stored[str(key)]
            if struct.unpack("<q", view.read(8)) != (stored.numel(),):
                raise ValueError("a storage of another size")
            _fill(stored, view)
    return content


def _refuse_other_order(little: bool) -> None:
    if not little:
        raise ValueError("numbers with their bytes the other way round")


def _fill(stored: Tensor, stream: Any) -> None:
    """Read its bytes, a piece at a time."""
    room = stored.view(torch.uint8).numpy() if stored.numel() else np.empty(0, np.uint8)
    for start in range(0, len(room), 1 << 24):
        piece = room[start : start + (1 << 24)]
        piece[:] = np.frombuffer(stream.read(len(piece)), np.uint8)
