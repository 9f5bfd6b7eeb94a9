"""What an earlier run of `simgrad features` left in a folder, and whether this one goes on with it.

A file that is being written has a marker beside it; a finished one has an entry in features.json.
Both say what the file is made from. If that is the same, this run goes on, or has nothing to do. If
the settings are the same but the data have changed, or the file was a try with --limit, it is made
again. Anything else is refused.
"""

import contextlib
import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from simgrad.core.derived import content_hash, read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.core.files import open_array
from simgrad.data.arrays import HEADER, read_header

_BLOCK = 4096  # rows that are hashed at a time


@dataclass(frozen=True)
class FeatureWork:
    """Everything that decides the bytes of a file of features, as hashes."""

    settings: str  # network, weights, how pictures are cut, the form of the numbers
    data: str  # the data set's name
    images: str  # their names
    pictures: str  # what the pictures hold
    limit: int | None = None  # a try: only this many images

    def same_as(self, told: dict[str, Any]) -> bool:
        """Whether a file with this record has the same bytes."""
        return all(told.get(k) == v for k, v in asdict(self).items() if k != "limit")

    def replaces(self, told: dict[str, Any]) -> bool:
        """Whether a file with this record may go: a trial, or made before the data changed."""
        same = (told.get("settings"), told.get("data")) == (self.settings, self.data)
        return same or told.get("limit") is not None


def partial(target: Path) -> Path:
    """Where a file grows until it is whole."""
    return target.with_name(f".{target.name}.partial")


def lock_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _marker(target: Path) -> Path:
    return target.with_name(f".{target.name}.progress.json")


@dataclass(frozen=True)
class Begun:
    """How many rows an earlier run left, and their hash while the file is still growing."""

    rows: int
    content: str | None = None


def begun(target: Path, work: FeatureWork, rows: int) -> Begun:
    """What an earlier run of the same work left behind; what this one replaces is removed."""
    told = _told(target)
    if told is None:
        if target.exists():
            raise InputError(f"{target}: is there already; give another folder or delete it.")
        return Begun(0)
    if work.same_as(told):
        if target.exists():
            if _intact(target, told):
                return Begun(rows)
        elif partial(target).exists() and 0 <= int(told.get("rows") or 0) <= rows:
            return Begun(int(told.get("rows") or 0), told.get("rows_sha256"))
    elif not work.replaces(told):
        raise InputError(
            f"{target}: was begun with other settings (network, weights, `grid`, `half`, `batch`, "
            f"`device`) or for other data; give those, another folder, or delete {target.parent}."
        )
    for path in (_marker(target), partial(target), target):
        path.unlink(missing_ok=True)
    return Begun(0)


def _intact(target: Path, told: dict[str, Any]) -> bool:
    """Whether a whole file is what was written."""
    if told.get("rows_sha256") is not None:  # a marker: the run was stopped before the entry
        array = open_array(target)
        return bool(rows_hash(array, len(array)).hexdigest() == told["rows_sha256"])
    return told.get("content") in (None, content_hash(target))  # earlier versions kept no hash


def rows_hash(array: npt.NDArray[Any], rows: int) -> "hashlib._Hash":
    """The hash of the first rows of an array; more rows can be added to it."""
    digest = hashlib.sha256()
    for start in range(0, rows, _BLOCK):
        digest.update(array[start : min(start + _BLOCK, rows)].tobytes())
    return digest


def mark(target: Path, work: FeatureWork, rows: int, content: str) -> None:
    """Note in the marker that so many rows, with this hash, are safely on disk."""
    write_checked(_marker(target), asdict(work) | {"rows": rows, "rows_sha256": content})


def entry(target: Path, images: list[str]) -> dict[str, Any]:
    """What features.json says of a finished file."""
    told = _told(target) or {}
    kept = FeatureWork.__dataclass_fields__
    made_from = {key: value for key, value in told.items() if key in kept}
    return {
        "file": target.name,
        "images": images,
        "made_from": made_from,
        "content": content_hash(target),
    }


def finish(target: Path) -> None:
    """Remove the marker and the lock of a file that features.json describes by now."""
    for path in (_marker(target), lock_of(target)):
        with contextlib.suppress(OSError):  # on Windows, while it is open elsewhere
            path.unlink(missing_ok=True)


def _told(target: Path) -> dict[str, Any] | None:
    """What the marker says, or the header of a finished folder."""
    if _marker(target).exists():
        with contextlib.suppress(InputError):  # a damaged marker protects no file
            told = read_checked(_marker(target))
            return told if isinstance(told, dict) else {"limit": 0}
        return {"limit": 0}
    if not (target.parent / HEADER).exists():
        return None
    for one in read_header(target.parent)["splits"].values():
        if isinstance(one, dict) and one.get("file") == target.name and target.exists():
            made_from = one.get("made_from")
            told = made_from if isinstance(made_from, dict) else {}
            return told | {"content": one.get("content")}
    return None
