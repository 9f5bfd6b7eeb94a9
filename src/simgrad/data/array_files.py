"""Named arrays from the files people keep embeddings in; nothing in a file can run.

.npy (one array), .npz, .safetensors, .parquet and a folder of Hugging Face's `save_to_disk`: a
column of lists is an array of two dimensions, a column of numbers or texts one of one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import open_array, read_npz
from simgrad.core.parquet import read_parquet

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet")
ONLY = ""  # the name of an array that has none
# What people call the vectors of both sides.
IMAGES = ("images", "image_embeddings", "queries", "anchor")
TEXTS = ("texts", "captions", "text_embeddings", "documents", "positive")


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file by name, numpy's or torch's."""
    if is_saved(path):
        return _saved(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    readers = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors, ".parquet": _parquet}
    if path.suffix not in readers:
        raise InputError(f"{path}: arrays are read from {', '.join(SUFFIXES)} files.")
    return readers[path.suffix](path)


def package(what: str) -> Any:
    """The package `datasets`, which is not installed with simgrad itself."""
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"{what}: reading it needs the package datasets: pip install 'simgrad[huggingface]'."
        ) from None
    return datasets


def is_saved(path: Path) -> bool:
    """Whether a folder holds one table that Hugging Face's `save_to_disk` wrote."""
    return (path / "state.json").is_file() and (path / "dataset_info.json").is_file()


def pick(arrays: Mapping[str, Any], names: Sequence[str], path: Path, dimensions: int) -> Any:
    """The array of one of these names; or the only one of so many dimensions."""
    for name in names:
        if name in arrays:
            return arrays[name]
    fitting = [a for a in arrays.values() if a.ndim == dimensions and _numeric(a)]
    if len(fitting) != 1:
        shapes = [f"{name or 'one array'} {tuple(a.shape)}" for name, a in arrays.items()]
        raise InputError(
            f"{path}: an array of numbers with {dimensions} dimensions is needed, called "
            f"{' or '.join(names)} if there are several (it has: {', '.join(shapes) or 'nothing'})."
        )
    return fitting[0]


def _numeric(array: Any) -> bool:
    return not isinstance(array, np.ndarray) or array.dtype.kind in "fiub"


def _npy(path: Path) -> dict[str, Any]:
    return {ONLY: open_array(path)}


def _npz(path: Path) -> dict[str, Any]:
    return read_npz(path)


def _safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: not a safetensors file ({str(error)[:120]}).") from None


def _parquet(path: Path) -> dict[str, Any]:
    import pyarrow as arrow

    try:
        table = read_parquet(path)
        return {
            name: _column(table[name], f"{path}, column '{name}'") for name in table.schema.names
        }
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable .parquet file ({str(error)[:120]}).") from None


def _saved(path: Path) -> dict[str, Any]:
    datasets = package(str(path))
    try:
        table = datasets.load_from_disk(str(path)).with_format("arrow")[:]
    except Exception as error:  # arrow, JSON and OS errors of a damaged folder
        raise InputError(f"{path}: cannot be read ({str(error)[:120]}).") from None
    return {name: _column(table[name], f"{path}, column '{name}'") for name in table.schema.names}


def _column(column: Any, where: str) -> Any:
    import pyarrow as arrow

    kinds = arrow.types
    joined = column.combine_chunks()
    if isinstance(joined, arrow.ChunkedArray):  # of a table without rows
        joined = arrow.array([], column.type)
    if joined.null_count:
        raise InputError(f"{where}: row {joined.is_null().index(True).as_py()} is empty.")
    kind = joined.type
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        lengths = np.unique(np.diff(joined.offsets.to_numpy())) if hasattr(joined, "offsets") else 0
        values = joined.flatten().to_numpy(zero_copy_only=False)
        if np.size(lengths) > 1 or (len(joined) and len(values) % len(joined)):
            raise InputError(f"{where}: its lists have different lengths.")
        return values.reshape(len(joined), -1) if len(joined) else values.reshape(0, 0)
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return np.array(joined.to_pylist(), dtype=object)
    return joined.to_numpy(zero_copy_only=False)
