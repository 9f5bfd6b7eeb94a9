"""Help for tables and lists in text files: which file it is, its text, its separator, its cells."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.files import require_file
from simgrad.data.base import LONGEST_CAPTION
from simgrad.data.layouts.building import known_split
from simgrad.data.pictures import SUFFIXES

SEPARATORS = "\t|;,"
_ENDINGS = "|".join(sorted(suffix[1:] for suffix in SUFFIXES))
# A picture's file name and what comes after it; Flickr8k has names that end in .jpg.1.
PICTURE = rf'"?(?P<name>[^\t|;"]*?\.(?:{_ENDINGS})(?:\.\d+)?)(?:#(?P<number>\d+))?"?'
_QUOTED = re.compile(r'"((?:[^"]++|"")*+)"[ \t]*(?=\r?\n|\Z)')
_LINE = re.compile(r"[^\n]*")
_LINES = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")  # with what ends them
_ESCAPED = re.compile("[\udc80-\udcff]")


def choose(
    path: Path,
    suffixes: Sequence[str],
    stems: Sequence[str],
    looks_right: Callable[[Path], bool],
) -> dict[Path, str | None]:
    """The files of a folder that hold captions, and the split of each where it has one of its own.

    A file that is called what such files are called comes first, then files that are called after
    splits, then any other.
    """
    if path.is_file():
        return {path: None} if path.suffix.lower() in suffixes and looks_right(path) else {}
    if not path.is_dir():
        return {}
    usual = (path / f"{stem}{suffix}" for stem in stems for suffix in suffixes)
    for file in usual:
        if file.is_file() and looks_right(file):
            return {file: None}
    files = [f for f in sorted(path.iterdir()) if f.suffix.lower() in suffixes and f.is_file()]
    right = {file: split_of(file) for file in files if looks_right(file)}
    if len(right) == 1:  # all there is, whatever it is called
        return dict.fromkeys(right)
    named = {file: split for file, split in right.items() if split is not None}
    return dict(named) if named and len(set(named.values())) == len(named) else right


def only_or_splits(path: Path, found: dict[Path, str | None]) -> dict[Path, str | None]:
    """Refuse to guess where several files could be meant."""
    if (len(found) > 1 and None in found.values()) or len(set(found.values())) < len(found):
        names = ", ".join(str(file) for file in found)
        raise InputError(f"{path}: several files could hold the captions: {names[:300]}; name one.")
    return found


def split_of(file: Path) -> str | None:
    """The split that a file is called after: captions_train.csv, Flickr_8k.devImages.txt."""
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", file.stem).lower())
    return next((known for word in reversed(words) if (known := known_split(word))), None)


def read_text(file: Path) -> str:
    """Its text; bytes that are not UTF-8 become lone surrogates, so that a line can be named."""
    return _decoded(require_file(file).read_bytes(), "surrogateescape")


def _decoded(data: bytes, errors: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # as spreadsheets write it
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors)


def head_of(file: Path, lines: int = 20) -> list[str]:
    """Its first lines that are not blank, to judge it by."""
    if not file.is_file():  # a pipe is not asked what it holds
        return []
    with open(file, "rb") as opened:
        data = opened.read(1 << 16)
    text = _decoded(data, "replace")
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()][:lines]


def first_line(text: str) -> str:
    """Without what comes after it, which may be large."""
    return _line(text, len(text) - len(text.lstrip("\r\n")))


def not_utf8(cell: str) -> bool:
    """Whether a cell has bytes that are not; see `read_text`."""
    return not cell.isascii() and _ESCAPED.search(cell) is not None


def cells_of(line: str, separator: str) -> list[str]:
    """A line with nothing odd in it, such as a header."""
    return [cell.strip().strip('"').strip() for cell in line.split(separator)]


def rows(file: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of a table by the rules of CSV, with the number of their first line."""
    # Captions may be longer than csv's default; the limit is the process's, so it is only raised.
    # csv takes ten times the memory of a cell: beyond a long caption there is no need to.
    csv.field_size_limit(max(csv.field_size_limit(), min(len(text), LONGEST_CAPTION)))
    # With their breaks, since a quoted caption may hold some; StringIO would take 4 times `text`.
    lines = (line.group() for line in _LINES.finditer(text))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    start = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            hint = " Is a closing quote missing?" if "larger" in str(error) else ""
            raise InputError(f"{file}, line {start}: {error}.{hint}") from None
        if cells is None:
            return
        yield start, cells
        start = reader.line_num + 1


def rows_with_rest(text: str, separator: str, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Rows whose last column, the caption, takes everything that is left of them.

    So it may hold separators and quotes; where all of it is quoted, line breaks too.
    """
    starts = re.compile(rf"\s*{PICTURE}\s*{re.escape(separator)}", re.IGNORECASE)
    at, number = 0, 1
    while at < len(text):
        begin, cells = at, []
        line = _line(text, at)
        for _ in range(columns - 1):
            cell, at = _cell(text, at, separator, begin + len(line))
            cells.append(cell)
            if at < 0:
                break
        if at < 0:  # a row that is too short
            end = begin + len(line)
        else:
            caption, end = rest_of(text, at, lambda line: bool(starts.match(line)))
            cells.append(caption)
        yield number, cells
        number += text.count("\n", begin, end) + 1
        at = end + 1


def rest_of(text: str, at: int, begins: Callable[[str], bool]) -> tuple[str, int]:
    """A caption that takes the rest of its line, or is quoted as a whole; and where it ends.

    `begins` tells a line that is a row of its own: a quote that was never closed ends before it.
    """
    blank = re.compile(r"[ \t]*").match(text, at)
    quoted = _QUOTED.match(text, blank.end() if blank else at)
    if quoted and not any(begins(line) for line in quoted.group().split("\n")[1:]):
        return quoted.group(1).replace('""', '"'), quoted.end() + (text[quoted.end() :][:1] == "\r")
    line = _line(text, at)
    return line.removesuffix("\r"), at + len(line)


def _line(text: str, at: int) -> str:
    found = _LINE.match(text, at)
    return found.group() if found else ""


def _cell(text: str, at: int, separator: str, end: int) -> tuple[str, int]:
    """One cell of a line that ends at `end`, and where the next begins: -1 where none does."""
    if text[at : at + 1] == '"':
        quoted = re.compile(rf'"((?:[^"\n]++|"")*+)"\s*{re.escape(separator)}').match(text, at)
        if quoted:
            return quoted.group(1).replace('""', '"'), quoted.end()
    place = text.find(separator, at, end)
    if place < 0:
        return text[at:end].removesuffix("\r"), -1
    return text[at:place], place + 1
