"""What an earlier run of `simgrad features` left in a folder, and whether this one goes on with it.

A file that is being written has a marker beside it; a finished one is told of in features.json.
Both say what the file is made from. The same: go on, or nothing to do. The same settings for data
that have changed since, or a try with --limit: made anew. Anything else is refused.
"""

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import read_json, write_json
from simgrad.core.hashes import content_hash
from simgrad.data.feature_folder import HEADER


@dataclass(frozen=True)
class Work:
    """Everything that decides the bytes of a file of features, as hashes."""

    settings: str  # network, weights, how pictures are cut, the form of the numbers
    data: str  # the data set's name
    images: str  # their names
    pictures: str  # what the pictures hold
    limit: int | None = None  # a try: only so many images

    def same_as(self, told: dict[str, Any]) -> bool:
        """Whether a file told of so has the same bytes."""
        return all(told.get(k) == v for k, v in asdict(self).items() if k != "limit")

    def replaces(self, told: dict[str, Any]) -> bool:
        """Whether a file told of so was a try, or is of the same work before the data changed."""
        same = (told.get("settings"), told.get("data")) == (self.settings, self.data)
        return same or told.get("limit") is not None


def partial(target: Path) -> Path:
    """Where a file grows until it is whole."""
    return target.with_name(f".{target.name}.partial")


def lock_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _marker(target: Path) -> Path:
    return target.with_name(f".{target.name}.progress.json")


def rows_done(target: Path, work: Work, rows: int) -> int:
    """How many rows an earlier run of the same work left behind; what it replaces is removed."""
    told = _told(target)
    if told is None:
        if target.exists():
            raise InputError(f"{target}: is there already; give another --output or delete it.")
        return 0
    if work.same_as(told):
        if target.exists():
            if told.get("content") in (None, content_hash(target)):
                return rows
        elif partial(target).exists() and 0 <= int(told.get("rows") or 0) <= rows:
            return int(told.get("rows") or 0)
    elif not work.replaces(told):
        raise InputError(
            f"{target}: was begun with other settings (network, weights, --grid, --half, --batch, "
            f"--device) or for other data; give those, another --output, or delete {target.parent}."
        )
    for path in (_marker(target), partial(target), target):
        path.unlink(missing_ok=True)
    return 0


def mark(target: Path, work: Work, rows: int) -> None:
    """So many rows are safely on disk."""
    write_json(_marker(target), asdict(work) | {"rows": rows})


def entry(target: Path, images: list[str]) -> dict[str, Any]:
    """What features.json says of a finished file."""
    told = _told(target) or {}
    made_from = {key: value for key, value in told.items() if key not in {"rows", "content"}}
    return {
        "file": target.name,
        "images": images,
        "made_from": made_from,
        "content": content_hash(target),
    }


def finish(target: Path) -> None:
    """Forget how a file came about, once a header says what it holds."""
    for path in (_marker(target), lock_of(target)):
        with contextlib.suppress(OSError):  # Windows: somebody has it open
            path.unlink(missing_ok=True)


def _told(target: Path) -> dict[str, Any] | None:
    """What the marker says, or the header of a finished folder."""
    if _marker(target).exists():
        told = read_json(_marker(target))
        return told if isinstance(told, dict) else None
    if not (target.parent / HEADER).exists():
        return None
    header = read_json(target.parent / HEADER)
    splits = header.get("splits") if isinstance(header, dict) else None
    for one in splits.values() if isinstance(splits, dict) else ():
        if isinstance(one, dict) and one.get("file") == target.name and target.exists():
            made_from = one.get("made_from")
            told = made_from if isinstance(made_from, dict) else {}
            return told | {"content": one.get("content")}
    return None
