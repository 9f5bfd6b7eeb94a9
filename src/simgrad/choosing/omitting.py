"""What a choice leaves out by itself: pictures that cannot be read, and copies across our splits.

A few missing or broken pictures must not stop a comparison, and must not be hidden: up to 2 % are
left out, and the answer says so. What is left out lies in a list that `--skip` takes anywhere else.
Splits that came with the data keep their copies.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.core.text import listed
from simgrad.data.arrays import read_header
from simgrad.data.base import Dataset
from simgrad.data.check import Findings, check
from simgrad.data.log import DataProblem, Log
from simgrad.data.opening import open_dataset, open_logged

LIST, FEATURES = "left-out.json", "features"  # in the folder of a choice
MOST = 0.02  # of the pictures
_NAMED = 3  # in a sentence


@dataclass(frozen=True)
class Looked:
    """Data as they are compared on."""

    dataset: Dataset
    found: Findings  # its problems: those that stay
    skip: str | None  # the list of what is left out
    omitted: str = ""  # what that is, in words


def look_through(data: str, skip: str | None, folder: Path, strict: bool) -> Looked:
    """Open data, look at every caption and picture, and leave out what cannot be used."""
    log = Log.read(skip)
    log.collect = True
    dataset = open_logged(data, log)
    if any(not problem.place for problem in log.problems):
        open_dataset(data, skip=skip)  # a whole file that cannot be read: its error says which
    found = check(dataset)
    lost = [*log.problems, *(one for one in found.problems if one.kind in ("missing", "broken"))]
    copies = [one for one in found.problems if one.kind == "copy"]
    pictures = sum(split.num_images for split in dataset.splits.values())
    if lost and (strict or len(lost) > MOST * pictures):
        raise InputError(_refusal(data, lost, pictures, log.root, strict))
    if not lost and not copies:
        return Looked(dataset, found, skip)
    target = (folder / LIST).resolve()
    write_json(target, {"skip": [*log.skipped, *log.entries([*lost, *copies])]})
    stay = [one for one in found.problems if not one.kind]
    opened = open_dataset(data, skip=target)
    told = _told(lost, copies)
    return Looked(opened, replace(found, problems=stay), str(target), told)


def left_out_before(features: str, folder: Path) -> str:
    """What was left out when features were computed, which is left out again, in words."""
    entries = read_header(Path(features).expanduser())["skip"]
    if not entries:
        return ""
    write_json(folder / LIST, {"skip": entries})
    told = [
        DataProblem(one["file"], one["place"], "", image=one.get("image"), kind=one.get("kind", ""))
        for one in entries
    ]
    copies = [one for one in told if one.kind == "copy"]
    return _told([one for one in told if one.kind != "copy"], copies)


def _told(lost: Sequence[DataProblem], copies: Sequence[DataProblem]) -> str:
    """3 missing and 2 broken pictures, 1 that stands there twice (a.jpg, b.jpg, c.jpg, ...)"""
    parts = [_kinds(lost)] if lost else []
    if copies:
        parts.append(f"{len(copies):,} of another split a second time")
    problems = [*lost, *copies]
    named = [one.image or f"{Path(one.file).name}, {one.place}" for one in problems[:_NAMED]]
    more = ", ..." if len(problems) > _NAMED else ""
    return f"{', '.join(parts)} ({', '.join(named)}{more})"


def _kinds(lost: Sequence[DataProblem]) -> str:
    """3 missing and 2 broken pictures"""
    counts = {kind: sum(one.kind == kind for one in lost) for kind in ("missing", "broken", "")}
    parts = [f"{n:,} {kind or 'unreadable'}" for kind, n in counts.items() if n]
    last = "record" if counts[""] else "picture"
    return f"{listed(parts, 'and')} {last}{'s' * (len(lost) > 1)}"


def _refusal(
    data: str, lost: Sequence[DataProblem], pictures: int, root: Path, strict: bool
) -> str:
    share = 100 * len(lost) / max(1, pictures)
    why = "`strict`" if strict else f"up to {100 * MOST:g} % are left out without asking"
    place, skip = shlex.quote(data), shlex.quote(str(root / "skip.json"))
    return (
        f"{data}: {_kinds(lost)}, {share:.1f} % of {pictures:,} ({why}). The first: "
        f"{lost[0]}\nTo leave them out:\n  simgrad datasets {place} --fix\n"
        f"  simgrad choose {place} --skip {skip}"
    )
