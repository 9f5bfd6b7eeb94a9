"""Pickles are read as plain data, in no more memory than their file holds."""

import argparse
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.models.unpickle import read_tensors
from tests.hardening.memory import at_most


def global_call(module: str, name: str, number: int) -> bytes:
    """A pickle that calls a name with one number."""
    head = b"\x80\x02c" + f"{module}\n{name}\n".encode()
    return head + b"J" + struct.pack("<i", number) + b"\x85R."


def zipped(path: Path, pickled: bytes, method: int = zipfile.ZIP_STORED) -> Path:
    """A file as torch.save writes them, around any pickle."""
    torch.save({"a": torch.zeros(4)}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, pickled if name.endswith("/data.pkl") else data)
    return path


def small_file_of_gigabytes(path: Path) -> Path:
    """279 bytes were enough for 6 GiB: three calls of `bytearray`, each of 30 bytes."""
    call = global_call("builtins", "bytearray", 2**31 - 1)[2:-1]
    return zipped(path, b"\x80\x02" + 3 * call + b"\x87.")


def deflated_zeros(path: Path) -> Path:
    """Zeros pack a thousand times."""
    zipped(path, b"")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in parts.items():
            with archive.open(name, "w") as entry:
                entry.write(data)
                if name.endswith("/data.pkl"):
                    entry.write(b"\x80\x02X" + struct.pack("<I", 2**29))
                    for _ in range(64):
                        entry.write(bytes(2**23))
                    entry.write(b".")
    return path


def announced_in_an_old_file(path: Path) -> Path:
    """The storages of old files are announced before they are read."""
    torch.save({"a": torch.zeros(1234)}, path, _use_new_zipfile_serialization=False)
    data, number = path.read_bytes(), b"M" + struct.pack("<H", 1234)
    assert number in data
    path.write_bytes(data.replace(number, b"J" + struct.pack("<i", 2**31 - 1)))
    return path


@pytest.mark.long
def test_a_small_file_takes_no_gigabytes(tmp_path: Path) -> None:
    makers = (small_file_of_gigabytes, deflated_zeros, announced_in_an_old_file)
    paths = [make(tmp_path / f"{make.__name__}.pth") for make in makers]
    assert sum(path.stat().st_size for path in paths) < 10_000_000
    code = (
        "import re, sys\n"
        "from simgrad.core.errors import InputError\n"
        "from simgrad.models.unpickle import read_tensors\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n        read_tensors(path)\n        print('read')\n"
        "    except InputError as error:\n        print(error)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    command = [sys.executable, "-c", code, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    *said, memory = done.stdout.splitlines()
    assert len(said) == len(paths)
    for path, line in zip(paths, said, strict=True):
        assert path.name in line
    assert "refused" in said[0]
    assert "larger than the file" in said[1]
    assert int(memory) * 1024 < 2**30  # torch alone takes a third of that


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "bytearray"),
        ("__builtin__", "bytearray"),
        ("torch", "Tensor"),
        ("torch.storage", "UntypedStorage"),
        ("torch", "FloatTensor"),
        ("collections", "Counter"),
        ("torch._utils", "_rebuild_sparse_tensor"),
        ("os", "mkdir"),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_what_no_checkpoint_needs_is_not_called(
    module: str, name: str, old: bool, tmp_path: Path
) -> None:
    path, pickled = tmp_path / "file.pth", global_call(module, name, 7)
    if old:
        path.write_bytes(pickled)
    else:
        zipped(path, pickled)
    with pytest.raises(InputError, match=rf"file\.pth: refused.*{name}"):
        read_tensors(path)


def test_tensors_that_repeat_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.pth"
    torch.save({"a": torch.zeros(1).expand(10**9)}, path)
    with pytest.raises(InputError, match="larger than the file"):
        read_tensors(path)
    one = torch.zeros(10_000)
    torch.save({str(i): one for i in range(100)}, path)
    with pytest.raises(InputError, match="larger than the file"):
        read_tensors(path)
    torch.save({"decoder": one, "embedding": one}, path)  # as pretrained BERTs share theirs
    assert set(read_tensors(path)) == {"decoder", "embedding"}


def old_pickles(*parts: bytes) -> bytes:
    """A file as torch wrote them before 2020, around any contents."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    return b"".join([*(pickle.dumps(part, 2) for part in head), *parts])


def test_a_zip_behind_an_old_file_does_not_speak_for_it(tmp_path: Path) -> None:
    """533 bytes took a gibibyte: the zip file was looked through, and the pickle was run."""
    path = tmp_path / "file.pth"
    harmless = zipped(path, pickle.dumps({}, 2)).read_bytes()
    path.write_bytes(old_pickles(global_call("builtins", "bytearray", 2**30)) + harmless)
    with at_most(64), pytest.raises(InputError, match=r"refused.*bytearray"):
        read_tensors(path)


def test_two_directories_in_one_file(tmp_path: Path) -> None:
    """Python reads the one before the end, torch the one where the end says it is."""
    path = tmp_path / "file.pth"
    first = zipped(path, global_call("builtins", "bytearray", 2**30)).read_bytes()
    second = zipped(path, pickle.dumps({}, 2)).read_bytes()
    path.write_bytes(first + second)
    with at_most(64), pytest.raises(InputError, match=r"file\.pth: not a readable checkpoint"):
        read_tensors(path)


def encoded(text: bytes, code: str, times: int) -> bytes:
    """_codecs.encode of _codecs.encode of ... a text."""
    name, end = b"c_codecs\nencode\n", b"X" + struct.pack("<I", len(code)) + code.encode()
    start = b"X" + struct.pack("<I", len(text)) + text
    return b"\x80\x02" + name * times + start + (end + b"\x86R") * times + b"."


@pytest.mark.parametrize(
    ("code", "text", "times"), [("hex", b"x" * 60, 24), ("punycode", "é".encode() * 30_000, 1)]
)
@pytest.mark.parametrize("old", [False, True])
def test_texts_become_bytes_in_one_way_only(
    code: str, text: bytes, times: int, old: bool, tmp_path: Path
) -> None:
    """1,079 bytes took 1.5 GiB; 60 KB took a minute."""
    path, attack = tmp_path / "file.pth", encoded(text, code, times)
    if old:
        path.write_bytes(old_pickles(attack))
    else:
        zipped(path, attack)
    with at_most(64), pytest.raises(InputError, match=f"refused.*encode to {code}"):
        read_tensors(path)


@pytest.mark.parametrize("old", [False, True])
def test_it_reads_what_torch_reads(old: bool, tmp_path: Path) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    base = torch.arange(24.0).view(4, 6)
    content = {
        "model": layer.state_dict(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "views": [base[1:3, ::2], base.t(), base[2, 3], base[:0]],
        "empty": torch.empty(0, 5),
        "kinds": {
            str(kind): torch.tensor([0, 1, 2]).to(kind)
            for kind in (torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8,
                         torch.int16, torch.int32, torch.int64, torch.bool)
        },
        "optimizer": torch.optim.Adam(layer.parameters()).state_dict(),
        "plain": (1, 2.5, "é", None, True, torch.Size([2, 3]), torch.float16, [{}]),
    }  # fmt: skip
    path = tmp_path / "file.pth"
    torch.save(content, path, _use_new_zipfile_serialization=not old)
    ours, theirs = read_tensors(path), torch.load(path, weights_only=True)
    assert ours.keys() == theirs.keys()
    assert ours["model"]._metadata == theirs["model"]._metadata
    assert type(ours["parameter"]) is torch.nn.Parameter
    flat, expected = (torch.utils._pytree.tree_flatten(value) for value in (ours, theirs))
    assert flat[1] == expected[1]
    for mine, other in zip(flat[0], expected[0], strict=True):
        if isinstance(other, torch.Tensor):
            assert mine.dtype == other.dtype
            assert mine.stride() == other.stride()
            assert torch.equal(mine, other)
        else:
            assert mine == other
    views = ours["views"]
    assert views[0].untyped_storage().data_ptr() == views[1].untyped_storage().data_ptr()


@pytest.mark.parametrize("old", [False, True])
def test_plain_data_comes_back(old: bool, tmp_path: Path) -> None:
    path = tmp_path / "file.pth"
    content = {
        "model": {"w": torch.arange(6.0).view(2, 3), "half": torch.ones(2, dtype=torch.bfloat16)},
        "best": np.float64(412.25),
        "single": np.float32(0.5),
        "steps": np.int64(-7),
        "done": np.bool_(True),
        "opt": argparse.Namespace(margin=0.2, names=["a", "b"], nothing=None),
        "set": {3},
    }
    torch.save(content, path, _use_new_zipfile_serialization=not old)
    found = read_tensors(path)
    assert torch.equal(found["model"]["w"], content["model"]["w"])
    assert torch.equal(found["model"]["half"], content["model"]["half"])
    assert (found["best"], found["single"], found["steps"]) == (412.25, 0.5, -7)
    assert found["done"] is True
    assert vars(found["opt"]) == vars(content["opt"])
    assert found["set"] == {3}


def test_two_entries_of_one_name(tmp_path: Path) -> None:
    """Two readers may take different ones."""
    path = zipped(tmp_path / "file.pth", pickle.dumps({}, 2))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("file/DATA.PKL", global_call("builtins", "bytearray", 9))
    with pytest.raises(InputError, match="not a readable checkpoint"):
        read_tensors(path)


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04 cut"])
def test_files_of_another_kind(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.pth"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"file\.pth: not a readable checkpoint"):
        read_tensors(path)
