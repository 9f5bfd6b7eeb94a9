"""Parquet files: read in batches, so that a few kilobytes cannot become all memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simgrad.core.files import require_file, unpacked_limit

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
