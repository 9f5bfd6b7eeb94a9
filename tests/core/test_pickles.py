"""Pickles of strangers take no more than was said before they are read."""

import io
import pickle
import struct
import subprocess
import sys
from collections import OrderedDict
from typing import Any

import pytest

from simgrad.core.pickles import LARGEST, OBJECTS, Call, Machine, RefusedName, TooLarge

BOUND = 256  # MiB; as docs/reliability.md says
# The shortest form of every instruction that leaves something in memory, after a head that keeps
# OrderedDict as 0, a tuple of arguments as 1 and a rebuilt tensor's function as 2.
WORST = {
    "none": b"N",
    "kept": b"\x94",
    "mark": b"(",
    "dict": b"}",
    "list": b"]",
    "set": b"\x8f",
    "tuple": b"\x85",
    "whole": b"J\xff\xff\xff\x7f",
    "long": b"\x8a\x02\xff\x7f",
    "real": b"G" + struct.pack(">d", 1.1),
    "text": b"\x8c\x02\xc4\x80",
    "bytes": b"C\x01\xff",
    "call": b"h\x00)R",
}


def machine(**calls: Any) -> Machine:
    def find(name: str) -> Any:
        if name not in calls:
            raise RefusedName(name)
        return Call(calls[name])

    return Machine(find, lambda made, state: None)


def load(data: bytes, **calls: Any) -> Any:
    return machine(**{f"m.{name}": call for name, call in calls.items()}).load(
        io.BytesIO(data), len(data)
    )


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("name", WORST)
def test_the_worst_instruction_stays_below_the_bound(name: str) -> None:
    code = (
        "import re\n"
        "from tests.core.test_pickles import WORST, OrderedDict, LARGEST, load\n"
        "def peak():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        f"unit = WORST[{name!r}]\n"
        "data = b'\\x80\\x04cm\\nm\\nq\\x00N' + unit * ((LARGEST - 20) // len(unit)) + b'.'\n"
        "before = peak()\n"
        "try:\n    load(data, m=OrderedDict)\n"
        "except ValueError:\n    pass\n"
        "print((peak() - before) / 1024)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(told.stdout) < BOUND


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_come_back(protocol: int) -> None:
    value = {
        "a": [1, -7, 2**40, 1.5, None, True, False, "é", "", ()],
        "b": {"c": ("x",), "d": ("x", "y"), "e": ("x", "y", "z"), "f": tuple("wxyz")},
        3: {"same": [1, 2]},
    }
    assert load(pickle.dumps(value, protocol)) == value


def test_bytes_and_sets_of_later_protocols() -> None:
    assert load(pickle.dumps([b"ab", {1, 2}], 4)) == [b"ab", {1, 2}]


@pytest.mark.parametrize("depth", [30, 60])
def test_nested_tuples_are_no_keys(depth: int) -> None:
    """434 bytes were hashed for longer than anybody waits."""
    nested = b"N" + b"".join(b"q\x00h\x00\x86" for _ in range(depth))
    for data in (b"\x80\x04}" + nested + b"Ns.", b"\x80\x04\x8f(" + nested + b"\x90."):
        with pytest.raises(ValueError, match="a tuple as a key"):
            load(data)


def test_keys_that_would_all_have_one_hash_are_refused() -> None:
    with pytest.raises(ValueError, match="as a key"):
        load(pickle.dumps({k * (2**61 - 1): 0 for k in range(10)}, 2))


def test_a_call_counts_what_it_copies() -> None:
    """A text is kept, and encoded again and again."""
    text = b"X" + struct.pack("<I", 10_000) + b"x" * 10_000
    many = b"(" + b"h\x01h\x00\x85R" * 1000 + b"t."
    with pytest.raises(ValueError, match="repeats too much"):
        load(b"\x80\x04cm\nencode\nq\x01" + text + b"q\x00" + many, encode=str.encode)


def test_lists_of_the_same_list_are_refused() -> None:
    value: Any = [1]
    for _ in range(40):
        value = [value, value]
    with pytest.raises(TooLarge):
        load(pickle.dumps(value, 2))
    value = []
    value.append(value)
    with pytest.raises(ValueError, match="contains itself"):
        load(pickle.dumps(value, 2))


def test_too_many_objects_and_too_many_bytes() -> None:
    with pytest.raises(ValueError, match="more objects"):
        load(b"\x80\x02" + b"]" * (OBJECTS + 1) + b".")
    with pytest.raises(ValueError, match="of this size"):
        load(b"\x80\x02" + b"I1\n" * (LARGEST // 3) + b"N.")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04cos\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"(ios\nsystem\n.",
        b"(cos\nsystem\no.",
        b"\x80\x02\x82\x01.",
        b"P1\n.",
        b"NQ.",
        b"N)R.",
        b"N)\x81.",
        b"N2.",
    ],
)
def test_what_is_not_listed_is_not_looked_up(data: bytes) -> None:
    with pytest.raises((RefusedName, ValueError)):
        load(data)


def test_a_listed_call_is_made() -> None:
    assert load(b"\x80\x02cm\nm\n)R.", m=OrderedDict) == OrderedDict()
