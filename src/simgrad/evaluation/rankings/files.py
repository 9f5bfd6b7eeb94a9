"""Files of rankings and judgments: TREC, BEIR, ranx, MTEB and MIEB.

- .json: {query: {document: score}} (ranx, MTEB 1), or that within {subset: {split: ...}} (MTEB 2).
- .parquet, .parq: the columns q_id, doc_id and score (ranx).
- Others, also .gz: TREC's lines, "query Q0 document rank score tag" of a ranking and "query 0
  document grade" of judgments; or BEIR's judgments, query-id, corpus-id and score.

Only scores order a ranking; TREC's column of ranks is not read, as trec_eval does not. Every
mistake names the file and the line, or the query and document where a format has no lines.
"""

import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import require_file
from simgrad.core.parquet import read_parquet
from simgrad.core.text import one_line

Table = dict[str, dict[str, float]]  # query -> document -> score, or grade
Folds = dict[str, Table]  # subset/split -> table; one of any name where there are none
Number = Callable[[Any], float]

_META = "mteb_model_meta"
_COLUMNS = ("q_id", "doc_id", "score")
_RUN = "query Q0 document rank score tag"
_QRELS = "query 0 document grade, or query-id, corpus-id and score with tabs between"


def read_run(path: Path) -> Folds:
    """A ranking: for each query the documents with their scores."""
    return _read(path, _score, {6: (0, 2, 4)}, _RUN)


def read_qrels(path: Path) -> Folds:
    """Judgments: for each query the documents with their grades, whole numbers."""
    return _read(path, _grade, {4: (0, 2, 3), 3: (0, 1, 2)}, _QRELS)


def model_name(path: Path) -> str | None:
    """The model that MTEB says, at the head of a file of predictions, that they are of."""
    with open(path, "rb") as file:
        head = file.read(4096).decode("utf-8", "replace")
    found = re.match(rf'\s*{{\s*"{_META}":\s*{{\s*"model_name":\s*"([^"\\]+)"', head)
    return found and found[1]


def line_of(path: Path, query: str, document: str) -> str:
    """Where a file names a document for a query: `FILE, line 12`, or in words."""
    if _is_text(path):
        for number, text in _lines(path):
            if any({query, document} <= set(text.split(mark)) for mark in ("\t", None)):
                return f"{path}, line {number}"
    return f"{path}, query {one_line(query)}, document {one_line(document)}"


def _read(path: Path, number: Number, columns: dict[int, tuple[int, int, int]], like: str) -> Folds:
    path = require_file(path)
    if path.suffix == ".lz4":
        raise InputError(f"{path}: .lz4 is not read; have ranx save it as .json or .parquet.")
    if path.suffix == ".json":
        found = _folds(path, _json(path), number)
    elif path.suffix in (".parquet", ".parq"):
        found = {"": _of_parquet(path, number)}
    else:
        found = {"": _of_text(path, number, columns, like)}
    if not any(found.values()):
        raise InputError(f"{path}: it names no query.")
    return found


def _is_text(path: Path) -> bool:
    return path.suffix not in (".json", ".parquet", ".parq")


# -- lines


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
        try:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield number, text
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: not UTF-8 text (byte {error.start} of the line)."
            ) from None
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(f"{path}: it cannot be read to its end ({error}).") from None


def _fields(text: str, counts: Container[int]) -> list[str]:
    """Between tabs where that gives the right number of them, else between blanks."""
    fields = text.split("\t")
    return fields if len(fields) in counts else text.split()


def _of_text(
    path: Path, number: Number, columns: dict[int, tuple[int, int, int]], like: str
) -> Table:
    table: Table = {}
    for place, text in _lines(path):
        fields = _fields(text, columns)
        if len(fields) not in columns:
            raise InputError(
                f"{path}, line {place}: '{one_line(text)[:60]}' has {len(fields)} columns; a line "
                f"is {like}."
            )
        query, document, value = (fields[i] for i in columns[len(fields)])
        if place == 1 and query == "query-id":  # BEIR's heading
            continue
        try:
            documents = table.setdefault(query, {})
            if document in documents:
                first = line_of(path, query, document).rpartition(" ")[2]
                raise ValueError(
                    f"document {one_line(document)} of query {one_line(query)} is there twice, "
                    f"first in line {first}"
                )
            documents[document] = number(value)
        except ValueError as error:
            raise InputError(f"{path}, line {place}: {error}.") from None
    return table


# -- JSON and Parquet


class _Twice(ValueError):
    """A name that an object of a JSON file has twice; Python alone would keep the last."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for i, name in enumerate(names) if name in names[:i]))
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except _Twice as error:
        name = one_line(str(error))
        raise InputError(f"{path}: '{name}' stands twice in one object.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON that can be read ({str(error)[:80]}).") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: not {{query: {{document: number}}}}.")
    return value


def _folds(path: Path, value: dict[str, Any], number: Number) -> Folds:
    """By depth: {query: {document: number}}, or that within {subset: {split: ...}}."""
    inside = {name: part for name, part in value.items() if name != _META}
    if _depth(inside) <= 2:
        return {"": check_table(inside, number, str(path))}
    found: Folds = {}
    for subset, splits in inside.items():
        if not isinstance(splits, dict) or _depth(splits) != 3:
            raise InputError(f"{path}: '{one_line(subset)}' is not {{split: {{query: ...}}}}.")
        for split, table in splits.items():
            found[f"{subset}/{split}"] = check_table(table, number, f"{path}, {subset}/{split}")
    return found


def _depth(value: Any) -> int:
    """How many objects lie within each other, along the first entries that are not empty."""
    if not isinstance(value, dict):
        return 0
    return 1 + max(
        (_depth(part) for part, _ in zip(value.values(), range(3), strict=False)), default=0
    )


def check_table(table: Any, number: Number, where: str) -> Table:
    """{query: {document: number}}, with every number looked at."""
    if not isinstance(table, dict):
        raise InputError(f"{where}: not {{query: {{document: number}}}}.")
    found: Table = {}
    for query, documents in table.items():
        place = f"{where}, query {one_line(str(query))}"
        if not isinstance(documents, dict):
            raise InputError(f"{place}: not {{document: number}}.")
        try:
            found[str(query)] = {str(d): number(value) for d, value in documents.items()}
        except ValueError:
            for document, value in documents.items():
                _name(number, value, f"{place}, document {one_line(str(document))}")
    return found


def _name(number: Number, value: Any, place: str) -> float:
    try:
        return number(value)
    except ValueError as error:
        raise InputError(f"{place}: {error}.") from None


def _of_parquet(path: Path, number: Number) -> Table:
    import pyarrow

    try:
        columns = read_parquet(path, _COLUMNS)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({str(error)[:120]}).") from None
    missing = [name for name in _COLUMNS if name not in columns.column_names]
    if missing:
        raise InputError(f"{path}: it lacks the column {', '.join(missing)}.")
    table: Table = {}
    rows = zip(*(columns.column(name).to_pylist() for name in _COLUMNS), strict=True)
    for place, (query, document, value) in enumerate(rows):
        documents = table.setdefault(str(query), {})
        if str(document) in documents:
            raise InputError(
                f"{path}, row {place}: document {document} of query {query} is there twice."
            )
        documents[str(document)] = _name(number, value, f"{path}, row {place}")
    return table


# -- numbers


def _score(value: Any) -> float:
    """A score; ValueError says what is wrong with it."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the score {value!r:.40} is not a number") from None
    if isinstance(value, bool) or math.isnan(found):
        raise ValueError(f"the score {value!r:.40} is not a number that orders anything")
    return found


def _grade(value: Any) -> float:
    """A grade; ValueError says what is wrong with it."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the grade {value!r:.40} is not a whole number") from None
    if isinstance(value, bool) or not found.is_integer():
        raise ValueError(f"the grade {value!r:.40} is not a whole number")
    return found


NUMBERS: dict[str, Number] = {"score": _score, "grade": _grade}
