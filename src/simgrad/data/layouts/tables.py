"""Tables of the package `datasets` with a column of images and one of captions; needs the extra
`huggingface`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgrad.core.derived import content_hash, contents_hash
from simgrad.core.errors import InputError
from simgrad.core.files import require_file, sha256
from simgrad.data.base import Dataset, Pictures
from simgrad.data.layouts.building import (
    CAPTION_COLUMNS,
    HASHED_NOTE,
    Growth,
    hashed_split,
    split_name,
)
from simgrad.data.log import Log
from simgrad.data.pictures import decode

if TYPE_CHECKING:
    from PIL.Image import Image

NAME_COLUMNS = ("filename", "file_name", "image_id", "img_id", "cocoid", "imgid")


@dataclass
class TablePictures:
    """Pictures in the rows of a saved data set, as bytes."""

    where: str
    table: Any
    column: str
    rows: list[int]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def root(self) -> Path | None:
        return None

    def path(self, row: int) -> Path | None:
        value = self._value(row)
        path = value.get("path")
        return Path(path) if not value.get("bytes") and path else None

    def picture(self, row: int) -> "Image":
        value = self._value(row)
        where = f"{self.where}, row {self.rows[row]}"
        data, path = value.get("bytes"), value.get("path")
        if not data and path:
            try:
                data = require_file(path).read_bytes()
            except (OSError, InputError):
                raise InputError(f"{where}: there is no picture {path}.") from None
        return decode(data or b"", where)

    def content(self, verify: bool = False) -> str:
        files = [Path(one["filename"]) for one in self.table.cache_files]
        paths = [path for row in range(len(self)) if (path := self.path(row)) is not None]
        kept = ",".join(map(str, self.rows))
        inside = sha256(*(content_hash(file, verify=verify) for file in files), kept)
        return sha256(inside, contents_hash(paths, verify=verify))

    def _value(self, row: int) -> dict[str, Any]:
        value = self.table[self.rows[row]][self.column]
        return value if isinstance(value, dict) else {}


def read_tables(name: str, where: str, loaded: Any, log: Log, published: bool) -> Dataset:
    """A loaded data set: one table, or one for each split."""
    growth = Growth(name, pattern="row {}")
    pictures: dict[str, Pictures] = {}
    tables = loaded if isinstance(loaded, dict) else {None: loaded}
    for split, table in tables.items():
        place = Path(where) / split if split else Path(where)
        growth.files.append(place)
        _read_table(place, table, split_name(split) if split else None, growth, pictures, log)
    return growth.build(pictures, published)


def _read_table(
    where: Path,
    table: Any,
    split: str | None,
    growth: Growth,
    pictures: dict[str, Pictures],
    log: Log,
) -> None:
    import datasets

    images = [name for name, kind in table.features.items() if isinstance(kind, datasets.Image)]
    column = next((name for name in CAPTION_COLUMNS if name in table.column_names), None)
    if column is None or not images:
        raise InputError(
            f"{where}: needs a column of images and one called caption, captions or text "
            f"(it has: {', '.join(table.column_names)})."
        )
    raw = table.select_columns([images[0]]).cast_column(images[0], datasets.Image(decode=False))
    naming = next((name for name in NAME_COLUMNS if name in table.column_names), None)
    wanted = [column, *([naming] if naming else [])]
    wanted += ["split"] if "split" in table.column_names else []
    for i, record in enumerate(table.select_columns(wanted)):
        captions = record[column]
        captions = [captions] if isinstance(captions, str) else captions
        if not isinstance(captions, list) or not all(isinstance(c, str) for c in captions):
            log.bad(where, f"row {i}", f"no text in the column '{column}'.")
            continue
        # Rows are counted in each table: "row 3" alone would be an image of every split.
        nameless = f"{split} row {i}" if split else f"row {i}"
        label = str(record[naming]) if naming else nameless
        given = split_name(record["split"]) if isinstance(record.get("split"), str) else split
        if given is None and HASHED_NOTE not in growth.notes:
            growth.notes.append(HASHED_NOTE)
        name = given or hashed_split(label)
        held = pictures.setdefault(name, TablePictures(str(where), raw, images[0], []))
        assert isinstance(held, TablePictures)
        growing = growth.split(name)
        if label not in growing.row_of:
            held.rows.append(i)
        row = growing.image(label)
        for caption in captions:
            growing.caption(row, caption, at=(len(growth.files) - 1, i, 0))
