"""Images with a list of captions: NAME.jpg, a separator, the caption; a line each, no header.

captions.txt (`dog.jpg, A dog runs`), Flickr8k.token.txt and Flickr30k's results_20130124.token
(`dog.jpg#0<TAB>A dog runs .`). Everything after the first separator is the caption. Lists of names
beside it (Flickr_8k.trainImages.txt, train.txt) are splits.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset
from simgrad.data.layouts import separated
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import Growth
from simgrad.data.log import Log

_STEMS = ("captions", "Flickr8k.token", "results_20130124", "results")
_SUFFIXES = (".txt", ".token", ".tsv", ".csv")
_BETWEEN = r"(?:[ ]*(?:[\t|;,:]|[-=]>|- )[ ]*|[ ]+)"
_LINE = re.compile(rf"[ ]*{separated.PICTURE}{_BETWEEN}(?=[^\n]*\S)", re.IGNORECASE)
_BARE = re.compile(rf"[ ]*{separated.PICTURE}[ ]*[\t|;,:]?[ ]*\Z", re.IGNORECASE)
# A caption is no caption's name: human judgments are lists of pairs of names.
_JUDGMENT = re.compile(r"\S+#\d+\s")
_MOST_NAMES = 10_000_000  # bytes of a list of names


@declare(
    "list",
    paper="Hodosh et al., JAIR 2013; Young et al., TACL 2014",
    description="captions.txt or *.token: NAME.jpg, a separator, a caption",
)
@dataclass(frozen=True)
class Listed(Layout):
    """Lines of a picture's name and a caption."""

    def parts(self, path: Path) -> dict[str, bool]:
        if path.is_file():
            files = [path]
        else:
            files = sorted(path.iterdir()) if path.is_dir() else []
        texts = [file for file in files if file.suffix.lower() in _SUFFIXES]
        return {
            "captions.txt or *.token": bool(texts),
            "lines of a picture's name, a separator and a caption": bool(_files(path)),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        files = separated.only_or_splits(path, _files(path))
        if not files:
            raise InputError(f"{path}: no file with lines of a picture's name and a caption.")
        folder = path if path.is_dir() else path.parent
        growth = Growth(folder.resolve().name, files=list(files), pattern="line {}")
        splits = _splits(folder, set(files))
        left = 0
        for number, split in enumerate(files.values()):
            left += _read_file(number, split, splits, growth, log)
        if left:
            growth.notes.append(f"{left:,} captions of images that no list of a split names")
        return growth.finish(folder, published)


def _files(path: Path) -> dict[Path, str | None]:
    return separated.choose(path, _SUFFIXES, _STEMS, _looks_right)


def _looks_right(file: Path) -> bool:
    head = separated.head_of(file)
    fits = [_LINE.match(line) for line in head]
    if not head or fits[0] is None or sum(map(bool, fits)) < 0.9 * len(head):
        return False
    return not _JUDGMENT.match(head[0], fits[0].end())


def _read_file(
    number: int, split: str | None, splits: dict[str, str], growth: Growth, log: Log
) -> int:
    """Read one list; how many captions were left out, since no split has their image."""
    file, left, at, line_number = growth.files[number], 0, 0, 1
    text = separated.read_text(file)
    while at < len(text):
        begin, end = at, text.find("\n", at)
        end = len(text) if end < 0 else end
        line, place = text[begin:end].removesuffix("\r"), f"line {line_number}"
        found = _LINE.match(text, at) or _BARE.match(line)
        if separated.not_utf8(line):
            log.bad(file, place, "not UTF-8 text.")
        elif found is None and line.strip():
            log.bad(file, place, f"no picture's name and caption: {line[:60]!r}.")
        elif found is not None:
            rest = found.end() if found.string is text else end
            caption, end = separated.rest_of(text, rest, lambda one: bool(_LINE.match(one)))
            left += not _add(found, caption, (number, line_number, 0), split, splits, growth)
        line_number += text.count("\n", begin, end) + 1
        at = end + 1
    return left


def _add(
    found: re.Match[str],
    caption: str,
    at: tuple[int, int, int],
    split: str | None,
    splits: dict[str, str],
    growth: Growth,
) -> bool:
    name = found["name"].strip().removeprefix("./")
    if split is None and splits:
        split = splits.get(name) or splits.get(name.rpartition(".")[0])
        if split is None:
            return False
    growing = growth.split_of(name, split)
    identifier = f"{name}#{found['number']}" if found["number"] else None
    growing.caption(growing.image(name), caption.strip(), identifier, at)
    return True


def _splits(folder: Path, captions: set[Path]) -> dict[str, str]:
    """Image -> split, from lists of names that are called after splits."""
    splits: dict[str, str] = {}
    for file in filter(Path.is_file, sorted(folder.glob("*.txt"))):
        split = separated.split_of(file)
        if split is None or file in captions or file.stat().st_size > _MOST_NAMES:
            continue
        names = [line.strip() for line in file.read_text("utf-8-sig", "replace").split("\n")]
        if all(len(name.split()) <= 1 or _BARE.match(name) for name in names):
            splits.update({name: split for name in names if name})
    return splits
