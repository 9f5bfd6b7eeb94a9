"""Pictures in files: found by their names, opened one at a time; errors name the file."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simgrad.core.derived import contents_hash
from simgrad.core.errors import InputError
from simgrad.core.text import did_you_mean
from simgrad.data.pictures import SUFFIXES, decode

if TYPE_CHECKING:
    from PIL.Image import Image

# Where the published archives put their pictures, beside the list of captions.
_FOLDERS = (
    "images",
    "Images",
    "flickr30k-images",
    "flickr30k_images",
    "Flicker8k_Dataset",
    "Flickr8k_Dataset",
)

_MOST_FILES = 2_000_000
_MOST_GUESSES = 100


@dataclass(frozen=True)
class FilePictures:
    """One file per picture."""

    root: Path
    files: Sequence[str] = field(repr=False)  # relative to the root, or absolute

    def __len__(self) -> int:
        return len(self.files)

    def path(self, row: int) -> Path:
        """Its file; where there is none of that very name, the one that is meant, if one is."""
        path = self.root / self.files[row]
        if path.is_file():
            return path
        found = self._index.like(self.files[row])
        return found[0] if len(found) == 1 else path

    def picture(self, row: int) -> "Image":
        path = self.path(row)
        try:
            if path.exists() and not path.is_file():
                raise InputError(f"{path}: no file, and no picture.")
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {self._why(row, error)}") from None
        return decode(data, str(path))

    def content(self, verify: bool = False) -> str:
        # Plain strings: a hundred thousand paths as objects would take seconds.
        root = os.path.abspath(self.root)
        usual = (os.path.join(root, file) for file in self.files)
        paths = [p if os.path.isfile(p) else str(self.path(row)) for row, p in enumerate(usual)]
        return contents_hash(paths, verify=verify)

    def _why(self, row: int, error: OSError) -> str:
        if self.path(row).exists():
            return f"{error}."
        found = self._index.like(self.files[row])
        if len(found) > 1:
            return f"there is no such picture, but {found[0]} and {found[1]}: which is meant?"
        near = self._index.near(self.files[row])
        return (
            f"there is no such picture; did you mean {near}?"
            if near
            else "there is no such picture."
        )

    @cached_property
    def _index(self) -> "Index":
        return Index(self.root)


class Index:
    """Pictures below a folder, found by a name that is only nearly right.

    People write `dog.jpg` for `dog.JPG`, `2018/dog.jpg`, or leave the ending out.
    """

    def __init__(self, root: Path) -> None:
        self._by_name: dict[str, list[Path]] = {}
        self._by_numbers: dict[tuple[str, ...], dict[str, str]] = {}
        self._guesses = _MOST_GUESSES
        seen = 0
        for folder, _, files in os.walk(root):
            seen += len(files)
            if seen > _MOST_FILES:  # somebody's whole disk, not a folder of pictures
                break
            for file in files:
                stem, dot, ending = file.lower().rpartition(".")
                if f".{ending}" in SUFFIXES and dot:
                    path = Path(folder, file)
                    self._by_name.setdefault(file.lower(), []).append(path)
                    self._by_name.setdefault(stem, []).append(path)
                    self._by_numbers.setdefault(_numbers(stem), {})[_letters(stem)] = file

    def like(self, name: str) -> list[Path]:
        """The pictures that a name may mean: those that end as it does, or are called as it is."""
        parts = name.replace("\\", "/").lower().split("/")
        found = self._by_name.get(parts[-1], [])
        for keep in range(len(parts), 1, -1):
            ending = "/".join(parts[-keep:])
            nearer = [path for path in found if path.as_posix().lower().endswith(f"/{ending}")]
            if nearer:
                return sorted(nearer)
        return sorted(found)

    def near(self, name: str) -> str:
        """A picture with the same numbers and nearly the same letters: 0059.jpg for 00059.jpg.

        Other numbers are another picture. After many guesses it is no slip but another folder.
        """
        self._guesses -= 1
        stem = Path(name.replace("\\", "/")).stem.lower()
        candidates = self._by_numbers.get(_numbers(stem), {}) if self._guesses >= 0 else {}
        letters = _letters(stem)
        found = letters if letters in candidates else did_you_mean(letters, candidates, 0.85)
        return candidates.get(found, "")


def _numbers(stem: str) -> tuple[str, ...]:
    return tuple(number.lstrip("0") for number in re.findall(r"\d+", stem))


def _letters(stem: str) -> str:
    return re.sub(r"[\W\d_]+", " ", stem).strip()


def find_root(folder: Path, files: Sequence[str]) -> Path | None:
    """The folder that these files are relative to, judged by the first few; None if there is none.

    A folder called `images` counts even where the first pictures are missing from it.
    """
    probes = files[:20]
    within = [folder / name for name in _FOLDERS]
    roots = [*within, folder, *(folder.parent / name for name in _FOLDERS), folder.parent]
    found = [sum((root / probe).is_file() for probe in probes) for root in roots]
    if max(found, default=0) > 0:
        return roots[found.index(max(found))]
    for root in (*within, folder):  # names that are only nearly right
        if root.is_dir() and any(map(Index(root).like, probes)):
            return root
    return next((root for root in within if root.is_dir()), None)
