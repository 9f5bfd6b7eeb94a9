"""webdataset: tar shards whose members KEY.jpg and KEY.txt (or KEY.json) belong together.

Nothing is unpacked. Headers are read once, into an index that is kept (`shard_index.py`); pictures
are then read at their offset.
The split is the folder or the first word of a shard's name: train/00000.tar, test-0001.tar.
"""

import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from simgrad.core.console import track
from simgrad.core.errors import InputError
from simgrad.core.files import require_file, sha256
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import hashed_split, known_split
from simgrad.data.layouts.shard_index import Collected, InShards, indexed_dataset, shard_index
from simgrad.data.log import Log
from simgrad.data.pictures import SUFFIXES, decode

if TYPE_CHECKING:
    from PIL.Image import Image

_TEXT = ("txt", "caption", "captions", "text")
_LARGEST_TEXT = 16 << 20


@dataclass(frozen=True)
class Member:
    """Where a member's bytes lie."""

    shard: Path
    name: str
    offset: int
    size: int

    def read(self, file: IO[bytes]) -> bytes:
        """Its bytes, from its shard, which is open."""
        # Room for what the header promises would be made before anything is read.
        ends = file.seek(0, os.SEEK_END) < self.offset + self.size
        file.seek(self.offset)
        data = b"" if ends else file.read(self.size)
        if len(data) < self.size:
            raise InputError(f"{self.shard}, member {self.name}: the shard ends too early.")
        return data


class ShardPictures(InShards):
    """Pictures inside tar shards."""

    def content(self, verify: bool = False) -> str:
        places = (
            f"{m.shard.name} {m.name} {m.offset} {m.size}\n"
            for m in map(self._member, range(len(self)))
        )
        return sha256(*self.used(verify), *places)

    def _member(self, row: int) -> Member:
        index = self.index
        offset, size = index.place[row].tolist()
        return Member(index.shards[int(index.shard[row])], index.members[row], offset, size)

    def picture(self, row: int) -> "Image":
        member = self._member(row)
        with open(member.shard, "rb") as file:
            data = member.read(file)
        return decode(data, f"{member.shard}, member {member.name}")


@declare(
    "webdataset",
    paper="https://github.com/webdataset/webdataset",
    description="SPLIT-0000.tar shards of KEY.jpg + KEY.txt or KEY.json",
)
@dataclass(frozen=True)
class WebDataset(Layout):
    """Samples in tar files, read where they lie."""

    def parts(self, path: Path) -> dict[str, bool]:
        return {"SPLIT-0000.tar": bool(_shards(path))}

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        shards = _shards(path)
        splits = [_split(path, shard) for shard in shards]

        def collect() -> dict[str, Collected]:
            found: dict[str, Collected] = {}
            numbered = list(enumerate(zip(shards, splits, strict=True)))
            for number, (shard, split) in track(numbered, "reading shards"):
                with open(require_file(shard), "rb") as file:
                    for i, (key, parts) in enumerate(_samples(shard, log)):
                        _add(key, parts, split, found, log, (number, shard, i), file)
            return found

        indexes = shard_index(path, self.name, shards, log, collect)
        name = path.name.removesuffix(".tar")
        return indexed_dataset(name, indexes, ShardPictures, None in splits, published)


def _split(path: Path, shard: Path) -> str | None:
    return known_split(shard.parent.name if shard.parent != path else shard.name)


def _shards(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".tar" or path.name.endswith((".tar.gz", ".tgz")) else []
    found = [*path.glob("*.tar"), *path.glob("*/*.tar"), *path.glob("*.tar.gz")]
    return sorted(found)


def _samples(shard: Path, log: Log) -> Iterator[tuple[str, dict[str, Member]]]:
    """The members of each key, in the order of the shard."""
    samples: dict[str, dict[str, Member]] = {}
    end = shard.stat().st_size
    for member in _members(shard, log):
        folder, _, base = member.name.rpartition("/")
        if base.startswith("."):
            continue
        stem, _, suffix = base.partition(".")
        parts = samples.setdefault(f"{folder}/{stem}" if folder else stem, {})
        if member.offset + member.size > end:
            log.bad(shard, f"member {member.name}", "the shard ends too early.")
        elif suffix.lower() in parts:
            log.bad(shard, f"member {member.name}", "is there twice.")
        else:
            parts[suffix.lower()] = member
    yield from samples.items()


def _members(shard: Path, log: Log) -> Iterator[Member]:
    """Every file in a shard, from its header."""
    last, archive = "", None
    try:
        with tarfile.open(require_file(shard), "r:") as archive:
            for info in archive:
                last = info.name
                archive.members = []  # type: ignore[attr-defined]  # else it keeps every header
                if info.isfile() and not info.issparse():
                    yield Member(shard, info.name, info.offset_data, info.size)
            # Where a header is damaged tarfile takes it for the end; only blanks may follow.
            with open(shard, "rb") as file:
                file.seek(archive.offset)
                damaged = any(file.read(1024))
        if damaged:
            log.bad(shard, f"after member {last}", "damaged; what follows cannot be read.")
    except tarfile.TarError as error:
        if archive is None:
            what = "compressed" if shard.name.endswith("gz") else f"no readable tar ({error})"
            raise InputError(f"{shard}: {what}; shards are plain .tar files.") from None
        log.bad(shard, f"member {last}", f"damaged ({error}); what follows cannot be read.")


def _add(
    key: str,
    parts: dict[str, Member],
    split: str | None,
    found: dict[str, Collected],
    log: Log,
    at: tuple[int, Path, int],
    file: IO[bytes],
) -> None:
    number, shard, sample = at
    image = next((m for suffix, m in parts.items() if f".{suffix}" in SUFFIXES), None)
    if image is None:
        log.bad(shard, f"member {key}", "no picture with this key.")
        return
    captions = _captions(shard, key, parts, log, file)
    if captions is None:
        return
    into = found.setdefault(split or hashed_split(key), Collected())
    place = (image.offset, image.size)
    into.add((number, shard), (sample, key), image.name, place, captions)


def _captions(
    shard: Path, key: str, parts: dict[str, Member], log: Log, file: IO[bytes]
) -> list[str] | None:
    member = next((parts[suffix] for suffix in (*_TEXT, "json") if suffix in parts), None)
    if member is None:
        log.bad(shard, f"member {key}", "no .txt or .json with this key.")
        return None
    place = f"member {member.name}"
    if member.size > _LARGEST_TEXT:
        log.bad(shard, place, "too large for captions.")
        return None
    try:
        text = member.read(file).decode("utf-8")
        if not member.name.endswith(".json"):
            return [line.strip("\r") for line in text.rstrip("\n").split("\n")]
        value = json.loads(text)
        captions = value.get("captions", value.get("caption")) if isinstance(value, dict) else None
    except UnicodeDecodeError as error:
        log.bad(shard, place, f"not UTF-8 text (byte {error.start}).")
        return None
    except (ValueError, RecursionError) as error:  # also absurd numbers
        log.bad(shard, place, f"not JSON ({str(error)[:80]}).")
        return None
    if isinstance(captions, str):
        return [captions]
    if isinstance(captions, list) and captions and all(isinstance(c, str) for c in captions):
        return captions
    log.bad(shard, place, "no 'caption' text and no list 'captions'.")
    return None
