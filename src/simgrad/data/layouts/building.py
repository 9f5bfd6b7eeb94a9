"""Help for readers: lines of text with their numbers, names of columns, and splits that grow record
by record.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import require_file
from simgrad.data.base import Dataset, Pictures, Split
from simgrad.data.log import Log
from simgrad.data.picture_files import FilePictures, find_root

# Other names for the three splits.
_SPLITS = {
    "dev": "val",
    "valid": "val",
    "validation": "val",
    "training": "train",
    "testing": "test",
    "restval": "train",
}
_ORDER = ("train", "val", "test")
PUBLISHED_CAPTIONS = 5


def split_name(text: str) -> str:
    """`train`, `val`, `test`, or another name as it is."""
    lower = text.strip().lower()
    return _SPLITS.get(lower, lower)


def known_split(text: str) -> str | None:
    """The split that a file or folder name starts with, if any."""
    head = text.lower().replace("-", "_").replace(".", "_").split("_")[0]
    return split_name(head) if split_name(head) in _ORDER else None


def hashed_split(name: str) -> str:
    """Where data come without splits: 80 / 10 / 10 by a hash of the image's name.

    Stable: adding pictures moves none of the others to another split.
    """
    place = int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:4]) % 10
    return "test" if place == 0 else "val" if place == 1 else "train"


_LOOKED_AT = 50  # pictures, to see whether they are there
HASHED_NOTE = "no splits given: 80/10/10 by a hash of the image's name"


def read_lines(path: Path, log: Log) -> list[str | None]:
    """Lines of UTF-8 text. None where one is not; its place is kept, since places pair captions."""
    data = require_file(path).read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: UTF-16 text; save it as UTF-8.")
    # Not splitlines(): a caption may contain the other characters that it breaks at.
    pieces = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if pieces[-1] == b"":
        pieces.pop()
    lines: list[str | None] = []
    for number, piece in enumerate(pieces, 1):
        try:
            lines.append(piece.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            log.bad(path, f"line {number}", f"not UTF-8 text (byte {error.start} of the line).")
            lines.append(None)
    return lines


def whole_characters(text: str) -> str:
    """JSON may carry half a surrogate pair, which no file or terminal takes: it becomes U+FFFD,
    which `simgrad datasets` reports."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# Where a caption was read: the number of its file, and two numbers within it.
Place = tuple[int, int, int]


@dataclass
class Growing:
    """A split while it is being read."""

    names: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    row_of: dict[str, int] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # captions of each image so far

    def image(self, name: str) -> int:
        """The row of an image, new or known."""
        row = self.row_of.setdefault(name, len(self.names))
        if row == len(self.names):
            self.names.append(name)
            self.counts.append(0)
        return row

    def caption(
        self, row: int, text: str, identifier: str | None = None, at: Place = (0, 0, 0)
    ) -> None:
        """One more caption of an image; its id is "name#k" where it has none."""
        self.places.append(at)
        self.captions.append(whole_characters(text))
        self.owners.append(row)
        self.ids.append(identifier or f"{self.names[row]}#{self.counts[row]}")
        self.counts[row] += 1

    def keep_first(self, count: int) -> int:
        """Keep the first captions of each image; how many others there were."""
        seen: Counter[int] = Counter()
        kept = []
        for i, owner in enumerate(self.owners):
            seen[owner] += 1
            if seen[owner] <= count:
                kept.append(i)
        dropped = len(self.captions) - len(kept)
        self.captions = [self.captions[i] for i in kept]
        self.owners = [self.owners[i] for i in kept]
        self.ids = [self.ids[i] for i in kept]
        self.places = [self.places[i] for i in kept]
        return dropped


@dataclass
class Growth:
    """Collects images and captions while a layout is read; `finish` makes the data set of them.

    Examples:
        >>> growth = simgrad.data.Growth("holiday")
        >>> train = growth.split("train")
        >>> train.caption(train.image("beach.jpg"), "two people on a beach")
        >>> growth.build({}, published=False)
        <Dataset holiday, layout
          train: 1 image, 1 caption>
    """

    name: str
    splits: dict[str, Growing] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    pattern: str = ""  # how a place in a file is written: "line {}"

    def _places(self, split: Growing) -> Callable[[int], str]:
        numbers = np.array(split.places, dtype=np.int64).reshape(-1, 3)  # small beside the captions
        files, pattern = self.files, self.pattern

        def place(row: int) -> str:
            file, *within = numbers[row].tolist()
            return f"{files[file]}, {pattern.format(*within)}"

        return place

    def split(self, name: str) -> Growing:
        return self.splits.setdefault(name, Growing())

    def split_of(self, image: str, given: str | None) -> Growing:
        """The split that was given for an image, else the one that a hash of its name says."""
        if given is None and HASHED_NOTE not in self.notes:
            self.notes.append(HASHED_NOTE)
        return self.split(given or hashed_split(image))

    def ordered(self) -> Iterable[tuple[str, Growing]]:
        """Train, val, test, then others in the order they came."""
        names = [*(n for n in _ORDER if n in self.splits), *(n for n in self.splits)]
        return ((name, self.splits[name]) for name in dict.fromkeys(names))

    def finish(self, folder: Path, published: bool) -> Dataset:
        """The data set, with picture files looked for in and around a folder."""
        files = [name for _, split in self.ordered() for name in split.names[:20]]
        root = find_root(folder, files)
        if root is None:
            self.notes.append(f"no pictures found in {folder} or its images folder")
        else:
            self.notes += _mostly_missing(
                root, [n for _, split in self.ordered() for n in split.names]
            )
        return self.build(
            {name: FilePictures(root, split.names) for name, split in self.splits.items()}
            if root is not None
            else {},
            published,
        )

    def build(
        self, pictures: "dict[str, FilePictures] | dict[str, Pictures]", published: bool
    ) -> Dataset:
        """The data set with these pictures."""
        splits = {}
        for name, split in self.ordered():
            if published and name != "train" and (n := split.keep_first(PUBLISHED_CAPTIONS)):
                self.notes.append(f"{name}: {n:,} captions beyond five per image are not used")
            splits[name] = Split(
                dataset=self.name,
                name=name,
                captions=split.captions,
                image_of_caption=np.array(split.owners, dtype=np.int64),
                image_names=split.names,
                pictures=pictures.get(name),
                caption_ids=split.ids,
                caption_places=self._places(split) if self.files else None,
            )
        return Dataset(self.name, "", splits, tuple(self.notes))  # opening it names the layout


def _mostly_missing(root: Path, names: Sequence[str]) -> list[str]:
    """A note where most of some pictures, evenly spread, are not there."""
    some = [
        names[row]
        for row in np.linspace(0, len(names) - 1, min(len(names), _LOOKED_AT)).astype(int)
    ]
    found = FilePictures(root, some)
    gone = [name for row, name in enumerate(some) if not found.path(row).is_file()]
    if 2 * len(gone) <= len(some):
        return []
    told = f"{len(gone)} of {len(some)} looked at are not in {root}, e.g. {gone[0][:80]}"
    return [f"most pictures are missing: {told}; `simgrad datasets` lists them"]


IMAGE_COLUMNS = (
    "image", "file_name", "filename", "file", "image_name", "image_path", "filepath", "path", "img",
    "image_file",
)  # fmt: skip
CAPTION_COLUMNS = (
    "caption", "captions", "text", "sentence", "sentences", "raw", "comment", "description",
)  # fmt: skip
SPLIT_COLUMNS = ("split", "set", "partition")
ID_COLUMNS = ("caption_id", "sentid", "id")
