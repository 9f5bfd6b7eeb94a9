"""parquet: shards of tables whose rows hold the bytes of a picture and its captions.

So the Hugging Face hub stores image data sets, and img2dataset writes them. Captions and names are
read once, into an index that is kept (`shard_index.py`). Pictures stay where they are: one of them
costs its row group, so shards with small row groups (100 rows) are quicker.
The split is the folder or the first word of a shard's name: train/0.parquet, test-00000.parquet.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgrad.core.console import track
from simgrad.core.errors import InputError
from simgrad.core.files import require_file, sha256, unpacked_limit
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import CAPTION_COLUMNS, hashed_split, known_split
from simgrad.data.layouts.shard_index import Collected, InShards, indexed_dataset, shard_index
from simgrad.data.layouts.tables import NAME_COLUMNS
from simgrad.data.log import Log
from simgrad.data.pictures import decode

if TYPE_CHECKING:
    from PIL.Image import Image

_GROUPS = 4  # row groups whose pictures are held


@dataclass(frozen=True)
class _Columns:
    """Which columns of a shard hold what."""

    image: str
    caption: str
    name: str | None

    @staticmethod
    def of(path: Path) -> "_Columns | None":
        """None: this is no such table."""
        import pyarrow
        import pyarrow.parquet as parquet

        try:
            schema = parquet.read_schema(require_file(path))
        except (pyarrow.ArrowException, OSError, ValueError):  # names that are no text, too
            return None
        images = [field.name for field in schema if _is_picture(field.type)]
        caption = next((name for name in CAPTION_COLUMNS if name in schema.names), None)
        name = next((name for name in NAME_COLUMNS if name in schema.names), None)
        return _Columns(images[0], caption, name) if images and caption else None


def _is_picture(kind: Any) -> bool:
    """Bytes; or {bytes, path}, as the package datasets writes them."""
    import pyarrow.types as types

    if types.is_struct(kind):
        return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


class ParquetPictures(InShards):
    """Pictures in the rows of shards."""

    def content(self, verify: bool = False) -> str:
        places = np.ascontiguousarray(self.index.place).tobytes()
        return sha256(*self.used(verify), places)

    def picture(self, row: int) -> "Image":
        index = self.index
        shard, (group, place) = index.shards[int(index.shard[row])], index.place[row].tolist()
        value = _pictures(shard, group, index.members[row])[place].as_py()
        data = value.get("bytes") if isinstance(value, dict) else value
        return decode(data or b"", f"{shard}, row group {group}, row {place}")


@functools.lru_cache(maxsize=_GROUPS)
def _pictures(shard: Path, group: int, column: str) -> Any:
    """The pictures of one row group."""
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(require_file(shard)) as file:
            _refuse_bomb(shard, file.metadata.row_group(group).total_byte_size)
            return file.read_row_group(group, columns=[column]).column(column)
    except (pyarrow.ArrowException, OSError, IndexError) as error:
        raise InputError(f"{shard}, row group {group}: {str(error)[:100]}.") from None


def _refuse_bomb(shard: Path, size: int) -> None:
    if size > unpacked_limit(shard):
        raise InputError(f"{shard}: a row group would unpack to {size / 2**30:,.1f} GiB.")


@declare(
    "parquet",
    paper="https://huggingface.co/docs/hub/datasets-image",
    description="SPLIT-0000.parquet shards of pictures (bytes) + captions",
)
@dataclass(frozen=True)
class ParquetShards(Layout):
    """Rows in tables, pictures read where they lie."""

    def parts(self, path: Path) -> dict[str, bool]:
        shards = _shards(path)
        known = bool(shards) and _Columns.of(shards[0]) is not None
        return {"SPLIT-0000.parquet with the bytes of pictures, and captions": known}

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        shards = _shards(path)
        splits = [known_split(_word(path, shard)) for shard in shards]

        def collect() -> dict[str, Collected]:
            found: dict[str, Collected] = {}
            numbered = list(enumerate(zip(shards, splits, strict=True)))
            for number, (shard, split) in track(numbered, "reading shards"):
                for sample, name, column, place, captions in _samples(shard, log):
                    into = found.setdefault(split or hashed_split(name), Collected())
                    # Rows of one name are captions of one image.
                    into.add((number, shard), (sample, name), column, place, captions, again=True)
            return found

        indexes = shard_index(path, self.name, shards, log, collect)
        return indexed_dataset(path.stem, indexes, ParquetPictures, None in splits, published)


def _shards(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    return sorted([*path.glob("*.parquet"), *path.glob("*/*.parquet")])


def _word(path: Path, shard: Path) -> str:
    """What names the split: the folder where it does (train/), else the file (data/train-0)."""
    inside = path not in (shard, shard.parent) and known_split(shard.parent.name) is not None
    return shard.parent.name if inside else shard.name


def _samples(shard: Path, log: Log) -> Iterator[tuple[int, str, str, tuple[int, int], list[str]]]:
    """Of each row: its number, name, column of pictures, row group and row in it, captions."""
    import pyarrow
    import pyarrow.parquet as parquet

    columns = _Columns.of(shard)
    if columns is None:
        log.bad(shard, "", "not a table with a column of pictures (bytes) and one of captions.")
        return
    wanted = [columns.caption, *([columns.name] if columns.name else [])]
    sample = 0
    try:
        with parquet.ParquetFile(require_file(shard)) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=wanted)
                texts = table.column(columns.caption).to_pylist()
                names = table.column(columns.name).to_pylist() if columns.name else None
                for row, value in enumerate(texts):
                    captions = [value] if isinstance(value, str) else value
                    whole = isinstance(captions, list) and bool(captions)
                    if whole and all(isinstance(one, str) for one in captions):
                        name = str(names[row]) if names else f"{shard.stem} row {sample}"
                        yield sample, name, columns.image, (group, row), captions
                    else:
                        what = f"no text in the column '{columns.caption}'."
                        log.bad(shard, f"row {sample}", what)
                    sample += 1
    except (pyarrow.ArrowException, OSError) as error:
        log.bad(shard, f"row {sample}", f"damaged ({str(error)[:80]}); what follows is not read.")
