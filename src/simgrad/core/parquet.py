"""Parquet files: read in batches, so that none becomes all memory, with a checksum of their own."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, require_file, unpacked_limit

_ROWS = 4096  # read together


def read_parquet(path: str | Path, columns: Sequence[str] | None = None) -> Any:
    """A pyarrow table of a file, or of some of its columns; ValueError where it is a bomb."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    path = require_file(path)
    most, size, batches = unpacked_limit(path), 0, []
    with parquet.ParquetFile(path) as file:
        whole = file.schema_arrow
        if len(set(whole.names)) < len(whole.names):
            raise ValueError("two of its columns have the same name")
        fields = [field for field in whole if columns is None or field.name in columns]
        schema = arrow.schema(fields, whole.metadata)
        for batch in file.iter_batches(_ROWS, columns=schema.names):
            size += batch.nbytes
            if size > most:
                raise ValueError(f"it would unpack to more than {most / 2**30:,.1f} GiB")
            batches.append(batch)
    return arrow.Table.from_batches(batches, schema)


def column_names(path: str | Path) -> list[str]:
    """The columns of a file."""
    import pyarrow.parquet as parquet

    return list(parquet.read_schema(require_file(path)).names)


_CHECKSUM = b"simgrad_sha256"


def write_columns(path: str | Path, columns: dict[str, Any]) -> None:
    """Write arrays of numbers and lists of texts, whole or not at all."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    table = arrow.table(columns).replace_schema_metadata({_CHECKSUM: _checksum(columns)})
    with atomic_path(path) as temporary:
        # Names mostly begin like the one before: what differs is kept. 300 runs on the 1,000 images
        # of Flickr8k's test split take 7 MB.
        texts = [f.name for f in table.schema if arrow.types.is_string(f.type)]
        parquet.write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=12,
            use_dictionary=[name for name in columns if name not in texts],
            column_encoding=dict.fromkeys(texts, "DELTA_BYTE_ARRAY"),
        )


def read_columns(path: str | Path, names: Sequence[str], what: str) -> dict[str, Any]:
    """Columns as numpy arrays; an error names the file that cannot be read or was damaged."""
    import pyarrow as arrow

    if not Path(path).is_file():
        raise InputError(f"{path}: there is no such file.")
    try:
        table = read_parquet(path, names)
        columns = {name: table[name].to_numpy() for name in names}
        if any(table[name].null_count for name in names):
            raise ValueError("it has empty cells")
        expected = (table.schema.metadata or {}).get(_CHECKSUM)
        damaged = expected is not None and expected != _checksum(columns)
    except (arrow.ArrowException, KeyError, OSError, ValueError, TypeError) as error:
        told = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise InputError(f"{path}: not {what} ({told}).") from None
    if damaged:
        raise InputError(
            f"{path}: damaged: its content is not what was written; copy it or create it again."
        )
    return columns


def has_columns(path: Path, names: Sequence[str]) -> bool:
    """Whether a file is a Parquet file with these columns."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        return set(names) <= set(parquet.read_schema(path).names)
    except (arrow.ArrowException, OSError, ValueError):  # names that are no text, too
        return False


def _checksum(columns: dict[str, Any]) -> bytes:
    digest = hashlib.sha256()
    for name, values in columns.items():
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            kept = array.astype("<f8" if array.dtype.kind == "f" else "<i8").tobytes()
        else:  # half surrogates are no UTF-8, and Parquet would have refused them
            kept = "\0".join(map(str, array.tolist())).encode()
        digest.update(f"{name} {len(array)}\n".encode() + kept)
    return digest.hexdigest().encode()
