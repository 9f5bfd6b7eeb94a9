"""Images with a table of captions: captions.csv, .tsv, .txt, .jsonl or .parquet.

Its columns are named: the image's file (image, file_name, ...), its caption (caption, text, ...) or
a list of captions, and optionally split and id. An image may have any number of rows. Kaggle's
captions.txt of Flickr8k and results.csv of Flickr30k are such tables.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.parquet import column_names, read_parquet
from simgrad.core.spec import setting
from simgrad.core.text import counted
from simgrad.data.base import Dataset
from simgrad.data.layouts import separated
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import (
    CAPTION_COLUMNS,
    ID_COLUMNS,
    IMAGE_COLUMNS,
    SPLIT_COLUMNS,
    Growth,
    known_split,
    read_lines,
    split_name,
)
from simgrad.data.log import Log

_STEMS = ("captions", "metadata", "annotations", "results")
_TEXTS = (".csv", ".tsv", ".txt")
_SUFFIXES = (*_TEXTS, ".jsonl", ".parquet")
_NAMED = "give the data as 'captions(path=..., image=..., caption=...)'"

Record = tuple[str, dict[str, Any]]  # its place, its columns


@declare(
    "captions",
    paper="",
    description="captions.csv, .tsv, .txt, .jsonl or .parquet with named columns",
)
@dataclass(frozen=True)
class Captions(Layout):
    """A table whose columns are named."""

    image: str | None = setting(None, "the image's column, if not called 'image'")
    caption: str | None = setting(None, "the caption's column, if not called 'caption'")
    split: str | None = setting(None, "the split's column, if not called 'split'")

    def parts(self, path: Path) -> dict[str, bool]:
        there = path if path.is_file() else next(iter(_tables(path)), None)
        told = "a first line that names the columns 'image' and 'caption'"
        if there is not None and there.suffix.lower() != ".parquet" and (head := _head(there)):
            told += (
                f" (line 1 of {there.name} is {_told(head, 60)}; if its columns have other names, "
            )
            told += f"{_NAMED})"
        return {
            "captions.csv, .tsv, .txt, .jsonl or .parquet": there is not None
            and there.suffix.lower() in _SUFFIXES,
            told: bool(self._files(path)),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        files = separated.only_or_splits(path, self._files(path))
        if not files:
            files = dict.fromkeys([path] if path.is_file() else _tables(path)[:1])
        if not files:
            raise InputError(f"{path}: no captions.csv, .tsv, .txt, .jsonl or .parquet there.")
        folder = path if path.is_dir() else path.parent
        growth = Growth(folder.resolve().name, files=list(files), pattern="line {}")
        for number, (file, split) in enumerate(files.items()):
            self._refuse_unknown_columns(file)
            readers = {".jsonl": self._json_lines, ".parquet": self._parquet}
            for place, record in readers.get(file.suffix.lower(), self._separated)(file, log):
                self._read_record(record, number, place, split, growth, log)
        return growth.finish(folder, published)

    # -- which columns

    def _files(self, path: Path) -> dict[Path, str | None]:
        return separated.choose(path, _SUFFIXES, _STEMS, self._looks_right)

    def _names(self) -> "_Names":
        return _Names(
            (self.image.lower(),) if self.image else IMAGE_COLUMNS,
            (self.caption.lower(),) if self.caption else CAPTION_COLUMNS,
            (self.split.lower(),) if self.split else SPLIT_COLUMNS,
        )

    def _looks_right(self, file: Path) -> bool:
        match file.suffix.lower():
            case ".parquet":
                columns = _columns(file)
                return not columns or self._names().fit(columns)  # reading says what is wrong
            case ".jsonl":
                return self._names().fit(_columns(file))
            case _:
                return self._separator(_head(file)) is not None

    def _refuse_unknown_columns(self, file: Path) -> None:
        """Columns that were asked for by name must be there."""
        columns = _columns(file)
        asked = [self.image, self.caption]
        if file.suffix.lower() != ".jsonl":  # there a first record may do without
            asked.append(self.split)
        lacking = [name for name in asked if name and name.lower() not in map(str.lower, columns)]
        if columns and lacking:
            told = ", ".join(f"'{name[:40]}'" for name in columns[:20])
            raise InputError(f"{file}: no column '{lacking[0]}'; it has {told}.")

    def _separator(self, header: str) -> str | None:
        """The character that cuts the header into the columns we need."""
        names = self._names()
        fits = (s for s in separated.SEPARATORS if names.fit(separated.cells_of(header, s)))
        return next(fits, None)

    # -- readers

    def _separated(self, file: Path, log: Log) -> Iterator[Record]:
        text = separated.read_text(file)
        first_line = separated.first_line(text)
        if not first_line.strip():
            raise InputError(f"{file}: empty.")
        separator = self._separator(first_line)
        if separator is None:
            raise InputError(
                f"{file}, line 1: no header with 'image' and 'caption', but "
                f"{_told(first_line, 100)}. If its columns have other names, {_NAMED}."
            )
        header = [name.lower() for name in separated.cells_of(first_line, separator)]
        if header[-1] in self._names().caption:
            table = separated.rows_with_rest(text, separator, len(header))
        else:
            table = separated.rows(file, text, separator)
        first = True
        for number, cells in table:
            place = f"line {number}"
            if not any(cell.strip() for cell in cells):
                continue
            if first:
                first = False
                continue
            if len(cells) != len(header):
                log.bad(
                    file,
                    place,
                    f"{counted(len(cells), 'column')} where the header has {len(header)}.",
                )
            elif any(map(separated.not_utf8, cells)):
                log.bad(file, place, "not UTF-8 text.")
            else:
                yield place, dict(zip(header, cells, strict=True))

    def _json_lines(self, file: Path, log: Log) -> Iterator[Record]:
        for number, line in enumerate(read_lines(file, log), 1):
            if line is None or not line.strip():
                continue
            place = f"line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:  # also absurd numbers
                log.bad(file, place, f"not JSON ({str(error)[:80]}).")
                continue
            if isinstance(value, dict):
                yield place, {str(key).lower(): cell for key, cell in value.items()}
            else:
                log.bad(file, place, "not an object.")

    def _parquet(self, file: Path, log: Log) -> Iterator[Record]:
        import pyarrow

        names = self._names()
        wanted = {*names.image, *names.caption, *names.split, *ID_COLUMNS}
        try:
            every = column_names(file)
            kept = [name for name in every if name.lower() in wanted]
            table = read_parquet(file, kept)
            columns = [table.column(name).to_pylist() for name in kept]
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{file}: no readable parquet ({str(error)[:100]}).") from None
        if not {n.lower() for n in kept} & set(names.caption):
            raise InputError(f"{file}: no column 'caption' (it has: {', '.join(every)}).")
        for row, cells in enumerate(zip(*columns, strict=True)):
            yield f"row {row}", dict(zip([n.lower() for n in kept], cells, strict=True))

    # -- a record

    def _read_record(
        self,
        record: dict[str, Any],
        number: int,
        place: str,
        split: str | None,
        growth: Growth,
        log: Log,
    ) -> None:
        file, names = growth.files[number], self._names()
        image, captions = _first(record, names.image), _first(record, names.caption)
        if not isinstance(image, str) or not image.strip():
            log.bad(file, place, f"no image (a column {', '.join(names.image[:3])}, ...).")
            return
        if isinstance(captions, str):
            captions = [captions]
        if not isinstance(captions, list) or not all(isinstance(c, str) for c in captions):
            log.bad(file, place, f"{image[:80]}: no caption text.")
            return
        name = image.strip().removeprefix("./")
        told = _first(record, names.split)
        if told is not None and (not isinstance(told, str) or not told.strip()):
            log.bad(file, place, f"{name[:80]}: an empty split.")
            return
        known = split or (split_name(told) if isinstance(told, str) else None)
        if known is None and "/" in name:
            known = known_split(name.split("/")[0])
        growing = growth.split_of(name, known)
        row = growing.image(name)
        identifier = _first(record, ID_COLUMNS)
        for caption in captions:
            at = (number, int(place.split()[1]), 0)
            growing.caption(row, caption, None if identifier is None else str(identifier), at)


@dataclass(frozen=True)
class _Names:
    """What the columns may be called."""

    image: tuple[str, ...] = field(default=IMAGE_COLUMNS)
    caption: tuple[str, ...] = field(default=CAPTION_COLUMNS)
    split: tuple[str, ...] = field(default=SPLIT_COLUMNS)

    def fit(self, names: list[str]) -> bool:
        lower = {name.lower() for name in names}
        return bool(lower & set(self.image)) and bool(lower & set(self.caption))


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _tables(path: Path) -> list[Path]:
    """Files that could be tables, by their ending, the usual names first."""
    if not path.is_dir():
        return []
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES]
    return sorted(files, key=lambda file: file.stem not in _STEMS)


def _head(file: Path) -> str:
    return next(iter(separated.head_of(file, 1)), "")


def _told(line: str, most: int) -> str:
    """A line that may be a header, for a message; of any other file nothing is told."""
    columns = any(separator in line for separator in separated.SEPARATORS)
    return f"{line[:most]!r}" if columns else "one without columns"


def _keys(line: str) -> list[str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [str(key) for key in value] if isinstance(value, dict) else []


def _columns(file: Path) -> list[str]:
    """What a table's columns are called; none where it has none that can be read."""
    match file.suffix.lower():
        case ".parquet":
            return _parquet_columns(file)
        case ".jsonl":
            return _keys(_head(file))
        case _:
            header = _head(file)
            separator = max(separated.SEPARATORS, key=header.count)
            return separated.cells_of(header, separator) if separator in header else []


def _parquet_columns(file: Path) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(file).names)
    except (pyarrow.ArrowException, OSError, ValueError):
        return []
