"""What lies where in shards: read once, kept in the cache, opened again without reading them.

The index of a million pairs is some arrays on disk. They are mapped into memory, and a caption or
a name is decoded when it is asked for. It belongs to the shards as they lie there: after a change
of any of them (its size, or a time of change) it is made again.
"""

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.derived import (
    cache_folder,
    content_hash,
    read_array,
    read_kept,
    settled,
    write_array,
    write_kept,
)
from simgrad.core.errors import InputError
from simgrad.core.files import lock, sha256
from simgrad.data.base import LONGEST_CAPTION, Dataset, Lazy, Pictures, Rows, Split
from simgrad.data.layouts.building import HASHED_NOTE, PUBLISHED_CAPTIONS, whole_characters
from simgrad.data.log import Log

VERSION = 1  # goes up when the same shards would give another index
SPLITS = ("train", "val", "test")
_FILE = "index.json"
_NUMBERS = ("shard", "place", "owners", "read_at")


@dataclass(frozen=True)
class ShardIndex:
    """The samples of one split, an image each."""

    shards: Sequence[Path]
    names: Sequence[str]  # (images,)
    members: Sequence[str]  # (images,) what the picture is called in its shard
    shard: npt.NDArray[np.int32]  # (images,) its number
    place: Rows  # (images, 2) where the picture lies in it: offset and size, or row group and row
    captions: Sequence[str]
    owners: Rows  # (captions,) their images, in order
    read_at: Rows  # (captions, 2) the number of the shard, and of the sample in it

    def caption_place(self, row: int) -> str:
        """Which sample a caption came from."""
        shard, sample = self.read_at[row].tolist()
        return f"{self.shards[shard]}, sample {sample}"

    @property
    def caption_ids(self) -> Sequence[str]:
        """NAME#0, NAME#1, ... of each image."""
        first = np.searchsorted(self.owners, np.arange(len(self.names)))

        def identifier(row: int) -> str:
            image = int(self.owners[row])
            return f"{self.names[image]}#{row - int(first[image])}"

        return Lazy(len(self.owners), identifier)


@dataclass(frozen=True)
class InShards:
    """Pictures inside shards: none has a file of its own."""

    index: ShardIndex

    def __len__(self) -> int:
        return len(self.index.names)

    def path(self, row: int) -> Path | None:
        return None

    @property
    def root(self) -> Path | None:
        return None

    def used(self, verify: bool) -> list[str]:
        """Hashes of the shards that any picture lies in."""
        numbers = np.unique(self.index.shard).tolist()
        return [content_hash(self.index.shards[number], verify=verify) for number in numbers]


@dataclass
class _Texts:
    """Texts one after another, as bytes."""

    data: bytearray = field(default_factory=bytearray)
    ends: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, text: str) -> None:
        self.data += text.encode("utf-8", "surrogatepass")
        self.ends.append(len(self.data))

    def arrays(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The bytes, and where each text ends."""
        return np.frombuffer(bytes(self.data), np.uint8), np.array(self.ends, dtype=np.int64)


@dataclass
class Collected:
    """The samples of one split while shards are read."""

    names: _Texts = field(default_factory=_Texts)
    members: _Texts = field(default_factory=_Texts)
    captions: _Texts = field(default_factory=_Texts)
    numbers: "dict[str, array[int]]" = field(
        default_factory=lambda: {name: array("q") for name in _NUMBERS}
    )
    rows: dict[str, int] = field(default_factory=dict)  # by name

    def add(
        self,
        shard: tuple[int, Path],
        sample: tuple[int, str],
        member: str,
        place: tuple[int, int],
        captions: Sequence[str],
        *,
        again: bool = False,
    ) -> None:
        """One image with its captions.

        `again`: a name that was there before is the same image; else it gets its shard's name.
        """
        number, name = sample
        while name in self.rows and not again:
            name = f"{shard[1].name}:{name}"
        row = self.rows.setdefault(name, len(self.rows))
        if row == len(self.numbers["shard"]):
            self.names.add(name)
            self.members.add(member)
            self.numbers["shard"].append(shard[0])
            self.numbers["place"].extend(place)
        for caption in captions:
            if len(caption) > LONGEST_CAPTION:
                raise InputError(
                    f"{shard[1]}, sample {number}: a caption of {len(caption):,} characters; at "
                    f"most {LONGEST_CAPTION:,} are read. Is a line break missing?"
                )
            self.captions.add(whole_characters(caption))
            self.numbers["owners"].append(row)
            self.numbers["read_at"].extend((shard[0], number))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it, to be kept; captions in the order of their images."""
        found: dict[str, npt.NDArray[Any]] = {}
        for name, values in self.numbers.items():
            found[name] = np.array(values, dtype=np.int64)
        order = np.argsort(found["owners"], kind="stable")
        if not np.array_equal(order, np.arange(len(order))):
            texts, self.captions = _opened_texts(*self.captions.arrays()), _Texts()
            for row in order.tolist():
                self.captions.add(texts[row])
            found["owners"] = found["owners"][order]
            found["read_at"] = found["read_at"].reshape(-1, 2)[order].ravel()
        for name in ("names", "members", "captions"):
            found[name], found[f"{name}_ends"] = getattr(self, name).arrays()
        found["shard"] = found["shard"].astype(np.int32)
        return found


Arrays = dict[str, dict[str, npt.NDArray[Any]]]  # split -> name -> array
Read = Callable[[], dict[str, Collected]]  # all shards: a split, and what is in it


def shard_index(
    path: Path,
    layout: str,
    shards: Sequence[Path],
    log: Log,
    read: Callable[[], dict[str, Collected]],
) -> dict[str, ShardIndex]:
    """The index of each split: the one that was kept, or read from the shards, and then kept.

    Where problems are collected, the shards are read: a kept index knows of none.
    """
    stamp = None if log.collect else settled(shards)
    if stamp is None:
        return _opened({split: one.arrays() for split, one in read().items()}, shards)
    skipped = json.dumps(log.skipped, sort_keys=True)
    made_from = {"shards": stamp, "skipped": sha256(skipped), "version": f"{layout} {VERSION}"}
    key = sha256(f"{path.resolve()}\0{layout}\0{skipped}")[:32]
    return _opened(_kept(cache_folder() / "shards" / key, made_from, read), shards)


def _kept(
    folder: Path, made_from: dict[str, str], read: Callable[[], dict[str, Collected]]
) -> Arrays:
    def ready() -> Arrays | None:
        try:
            told = read_kept(folder / _FILE, made_from)["splits"]
            return {
                split: {n: read_array(folder / f"{split}.{n}.npy", one) for n, one in names.items()}
                for split, names in told.items()
            }
        except (InputError, OSError, ValueError, KeyError, AttributeError):
            return None  # none yet, or damaged

    known = ready()
    if known is not None:
        return known
    found: Arrays | None = None
    try:
        with lock(folder / "index.lock", what=str(folder)):
            known = ready()
            if known is not None:
                return known
            found = {split: one.arrays() for split, one in read().items()}
            told = {
                split: {
                    n: write_array(folder / f"{split}.{n}.npy", one) for n, one in arrays.items()
                }
                for split, arrays in found.items()
            }
            write_kept(folder / _FILE, {"splits": told}, made_from)
            return ready() or found
    except OSError:  # no place to keep it
        return found or {split: one.arrays() for split, one in read().items()}


def _opened(found: Arrays, shards: Sequence[Path]) -> dict[str, ShardIndex]:
    return {
        split: ShardIndex(
            shards,
            _opened_texts(arrays["names"], arrays["names_ends"]),
            _opened_texts(arrays["members"], arrays["members_ends"]),
            arrays["shard"],
            arrays["place"].reshape(-1, 2),
            _opened_texts(arrays["captions"], arrays["captions_ends"]),
            arrays["owners"],
            arrays["read_at"].reshape(-1, 2),
        )
        for split in SPLITS
        if (arrays := found.get(split)) is not None
    }


def _opened_texts(data: npt.NDArray[Any], ends: npt.NDArray[Any]) -> Sequence[str]:
    view = np.asarray(data).data

    def text(row: int) -> str:
        begin = int(ends[row - 1]) if row else 0
        return str(view[begin : int(ends[row])], "utf-8", "surrogatepass")

    return Lazy(len(ends), text)


def indexed_dataset(
    name: str,
    indexes: dict[str, ShardIndex],
    pictures: Callable[[ShardIndex], Pictures],
    hashed: bool,
    published: bool,
) -> Dataset:
    """The data set that indexes describe; `hashed`: the shards did not name splits."""
    notes, splits = [HASHED_NOTE] if hashed else [], {}
    for split, index in indexes.items():
        made = Split(
            dataset=name,
            name=split,
            captions=index.captions,
            image_of_caption=index.owners,
            image_names=index.names,
            pictures=pictures(index),
            caption_ids=index.caption_ids,
            caption_places=index.caption_place,
        )
        if published and split != "train":
            made, dropped = _first_captions(made)
            if dropped:
                notes.append(f"{split}: {dropped:,} captions beyond five per image are not used")
        splits[split] = made
    return Dataset(name, "", splits, tuple(notes))  # opening it names the layout


def _first_captions(split: Split) -> tuple[Split, int]:
    """With five captions of each image at most; how many others there were."""
    owners = split.image_of_caption
    first = np.searchsorted(owners, np.arange(split.num_images))
    rows = np.flatnonzero(np.arange(len(owners)) - first[owners] < PUBLISHED_CAPTIONS)
    captions, ids, places = split.captions, split.caption_ids, split.caption_places
    assert ids is not None
    assert places is not None
    made = replace(
        split,
        captions=Lazy(len(rows), lambda row: captions[int(rows[row])]),
        caption_ids=Lazy(len(rows), lambda row: ids[int(rows[row])]),
        caption_places=lambda row: places(int(rows[row])),
        image_of_caption=owners[rows],
    )
    return made, len(owners) - len(rows)
