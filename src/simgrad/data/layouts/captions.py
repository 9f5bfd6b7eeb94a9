"""A folder of images with captions.csv, .tsv, .jsonl or .parquet.

Columns: the image's file (image, file_name, ...), its caption (caption, text, ...) or a list of
captions, and optionally split and id. An image may have any number of rows.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset
from simgrad.data.layouts.building import (
    HASHED_NOTE,
    Growth,
    hashed_split,
    known_split,
    read_lines,
    split_name,
)
from simgrad.data.log import Log

_STEMS = ("captions", "metadata", "annotations")
_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")
IMAGE_COLUMNS = ("image", "file_name", "filename", "file", "image_name", "image_path", "filepath")
CAPTION_COLUMNS = ("caption", "captions", "text", "sentence", "sentences", "raw", "comment")
_SPLIT_COLUMNS = ("split", "set", "partition")
_ID_COLUMNS = ("caption_id", "sentid", "id")

Record = tuple[str, dict[str, Any]]  # its place, its columns


def recognises(path: Path) -> bool:
    return _table(path) is not None


def _table(path: Path) -> Path | None:
    if path.is_file():
        return path if path.suffix in _SUFFIXES[:4] else None
    for stem in _STEMS:
        for suffix in _SUFFIXES:
            file = path / f"{stem}{suffix}"
            if file.is_file() and (suffix != ".txt" or _has_header(file)):
                return file
    return None


def _has_header(file: Path) -> bool:
    """captions.txt counts when it is a table in disguise: `image,caption` on its first line."""
    with open(file, "rb") as opened:
        head = opened.readline(200).decode("utf-8", "replace").strip().lower()
    return any(head.startswith(f"{name},") for name in IMAGE_COLUMNS)


def read(path: Path, log: Log, published: bool) -> Dataset:
    file = _table(path)
    if file is None:
        raise InputError(f"{path}: no captions.csv, .tsv, .jsonl or .parquet there.")
    readers = {".jsonl": _json_lines, ".parquet": _parquet}
    pattern = "row {}" if file.suffix == ".parquet" else "line {}"
    records = readers.get(file.suffix, _separated)(file, log)
    growth = Growth(file.parent.name, "captions", files=[file], pattern=pattern)
    for place, record in records:
        _read_record(record, file, place, growth, log)
    return growth.finish(file.parent, published)


def _read_record(record: dict[str, Any], file: Path, place: str, growth: Growth, log: Log) -> None:
    image, captions = _first(record, IMAGE_COLUMNS), _first(record, CAPTION_COLUMNS)
    if not isinstance(image, str) or not image.strip():
        log.bad(file, place, f"no image (a column {', '.join(IMAGE_COLUMNS[:3])}, ...).")
        return
    if isinstance(captions, str):
        captions = [captions]
    if not isinstance(captions, list) or not all(isinstance(c, str) for c in captions):
        log.bad(file, place, f"{image[:80]}: no caption text.")
        return
    name = image.strip()
    split = _first(record, _SPLIT_COLUMNS)
    if split is not None and (not isinstance(split, str) or not split.strip()):
        log.bad(file, place, f"{name[:80]}: an empty split.")
        return
    known = split_name(split) if isinstance(split, str) else known_split(name.split("/")[0])
    if known is None or ("/" not in name and split is None):
        known = hashed_split(name)
        if HASHED_NOTE not in growth.notes:
            growth.notes.append(HASHED_NOTE)
    growing = growth.split(known)
    row = growing.image(name)
    identifier = _first(record, _ID_COLUMNS)
    for caption in captions:
        at = (0, int(place.split()[1]), 0)
        growing.caption(row, caption, None if identifier is None else str(identifier), at)


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _separated(file: Path, log: Log) -> Iterator[Record]:
    data = file.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{file}: UTF-16 text; save it as UTF-8.")
    # Bytes that are not UTF-8 become lone surrogates, so that their line can be named.
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    rows = _rows(file, text, "\t" if file.suffix == ".tsv" else ",")
    first = next(rows, None)
    if first is None:
        raise InputError(f"{file}: empty.")
    header = [name.strip().lower() for name in first[1]]
    if not set(header) & set(IMAGE_COLUMNS) or not set(header) & set(CAPTION_COLUMNS):
        raise InputError(
            f"{file}, line 1: no header with 'image' and 'caption' "
            f"(found: {', '.join(header)[:100]})."
        )
    for number, cells in rows:
        place = f"line {number}"
        if not cells:
            continue
        if len(cells) != len(header):
            log.bad(file, place, f"{len(cells)} columns where the header has {len(header)}.")
        elif any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
            log.bad(file, place, "not UTF-8 text.")
        else:
            yield place, dict(zip(header, cells, strict=True))


def _rows(file: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their first line."""
    # Captions may be longer than csv's default; the limit is the process's, so it is only raised.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    # newline="": a quoted caption may hold line breaks of its own.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    start = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{file}, line {start}: {error}.") from None
        if cells is None:
            return
        yield start, cells
        start = reader.line_num + 1


def _json_lines(file: Path, log: Log) -> Iterator[Record]:

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


def _parquet(file: Path, log: Log) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    wanted = {*IMAGE_COLUMNS, *CAPTION_COLUMNS, *_SPLIT_COLUMNS, *_ID_COLUMNS}
    try:
        table = pyarrow.parquet.read_table(file)
        names = [name for name in table.column_names if name.lower() in wanted]
        columns = [table.column(name).to_pylist() for name in names]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{file}: no readable parquet ({str(error)[:100]}).") from None
    if not {n.lower() for n in names} & set(CAPTION_COLUMNS):
        raise InputError(f"{file}: no column 'caption' (it has: {', '.join(table.column_names)}).")
    for row, cells in enumerate(zip(*columns, strict=True)):
        yield f"row {row}", dict(zip([n.lower() for n in names], cells, strict=True))
