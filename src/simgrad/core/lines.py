"""Lines of JSON that carry a checksum of themselves: a damaged one is noticed, the others stay.

A line without a checksum, of an earlier version or written by hand, is taken as it is.
"""

import json
import zlib
from typing import Any

from simgrad.core.errors import InputError

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
