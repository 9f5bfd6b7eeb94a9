"""One file that a user named: a file that is there already is replaced only if it is of our making.

Which file that is, its content says: what the same command writes holds certain words, or begins in
a certain way. Nothing is kept elsewhere, so a file may be moved and copied.
"""

import json
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.core.tables import TableFile, csv_text, text_of, write_csv, write_tables


def refuse_foreign(path: str | Path, *marks: str, start: str = "") -> Path:
    """Refuse to write over a file that does not hold these marks, or begins otherwise.

    Files that are empty, and devices, are nobody's work.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: a folder, where a file is to be written; name a file in it.")
    if not path.is_file() or not path.stat().st_size:
        return path
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as seen:
        begun = seen[: len(start.encode())] == start.encode()
        ours = begun and all(seen.find(mark.encode()) >= 0 for mark in marks)
    if not ours or not (marks or start):
        raise InputError(
            f"{path}: there is another kind of file already. It was left as it is: name another "
            "file, or remove it."
        )
    return path


def write_named_json(path: str | Path, value: Any) -> None:
    """Write JSON to a file that a user named, which may hold the same names from before."""
    first = value[0] if isinstance(value, list) and value else value
    names = first if isinstance(first, Mapping) else ()
    marks = (json.dumps(str(name), ensure_ascii=False) for name in names)  # as in the file
    write_json(refuse_foreign(path, *marks), value)


def write_named_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The same for records as comma-separated values: with the same columns."""
    write_csv(refuse_foreign(path, start=csv_text(rows[:1]).splitlines()[0]), rows)


def write_named_tables(path: Path, tables: Sequence[TableFile]) -> None:
    """The same for a .md, .tex or .html file."""
    text = text_of(path, tables)
    marks = {".md": "|---", ".html": 'class="simgrad"'}
    start = text.split("\n")[0] if path.suffix != ".md" else text.split(" ")[0] + " "
    refuse_foreign(path, *filter(None, [marks.get(path.suffix)]), start=start)
    write_tables(path, tables)
