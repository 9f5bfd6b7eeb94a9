"""Features in .npy files, and folders of them that `simgrad features` wrote.

Files are memory-mapped: a batch reads its own rows and nothing else. A folder holds features.json
and one SPLIT.npy per split:

{"layout": "simgrad-features", "data": ..., "skip": [...], "backbone": ..., "weights_sha256": ...,
"grid": ..., "alike": [[[split, name], ...], ...], "splits": {split: {"file": "train.npy",
"images": [names], "content": hash, "made_from": {...}}}}. Rows are found by the image's name. What
was left out with --skip when they were computed is left out again when they are used.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.derived import content_hash, read_checked
from simgrad.core.errors import InputError
from simgrad.core.files import open_array, sha256
from simgrad.data.base import Dataset, Rows, Split, with_splits


@dataclass(frozen=True)
class ArrayFeatures:
    """Rows of a memory-mapped array."""

    file: Path
    array: npt.NDArray[Any]  # (rows, dimension) or (rows, regions, dimension)
    row_of_image: Rows | None = None  # (images,) None: image i is row i
    source: str = ""  # what computed them

    def __len__(self) -> int:
        return len(self.array) if self.row_of_image is None else len(self.row_of_image)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape[1:]

    @property
    def header(self) -> str:
        return f"{self.source} {len(self)} {self.shape} {self.array.dtype.str}"

    def content(self, verify: bool = False) -> str:
        rows = b"" if self.row_of_image is None else self.row_of_image.tobytes()
        if not self.file.is_file():  # an array that was never written
            return sha256(np.ascontiguousarray(self.array).tobytes(), self.header, rows)
        return sha256(content_hash(self.file, verify=verify), rows)

    def rows(self, indices: Rows) -> npt.NDArray[np.float32]:
        at = indices if self.row_of_image is None else self.row_of_image[indices]
        values = np.asarray(self.array[at], dtype=np.float32)
        # One sum finds a NaN anywhere at a fraction of the cost of looking at each value.
        with np.errstate(over="ignore", invalid="ignore"):
            total = values.sum()
        if not np.isfinite(total):
            bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
            if bad.any():
                row = int(np.asarray(at)[np.flatnonzero(bad)[0]])
                raise InputError(f"{self.file}, row {row}: NaN or infinity among the features.")
        return values


def open_features(file: Path) -> npt.NDArray[Any]:
    """A memory-mapped array that can hold features."""
    array = open_array(file)
    if array.ndim not in (2, 3) or 0 in array.shape[1:]:
        raise InputError(
            f"{file}: features have the shape (images, dimension) or (images, regions, dimension), "
            f"not {array.shape}."
        )
    if array.dtype.kind != "f":
        raise InputError(f"{file}: features are floating-point numbers, not {array.dtype}.")
    return array


HEADER = "features.json"
_AGAIN = "run `simgrad features` again, into the same folder, to compute them again."


def read_header(folder: Path) -> dict[str, Any]:
    """What the folder says of itself."""
    file = folder / HEADER
    if not file.is_file():
        raise InputError(f"{file}: there is no such file; `simgrad features` writes such a folder.")
    value = read_checked(file)
    if not isinstance(value, dict) or not isinstance(value.get("splits"), dict):
        raise InputError(f"{file}: not written by `simgrad features` (no 'splits').")
    if not isinstance(value.setdefault("skip", []), list):
        raise InputError(f"{file}: 'skip' is not a list.")
    return value


def attach_features(dataset: Dataset, folder: Path) -> Dataset:
    """The data set with features from a folder; every image must be there."""
    header = read_header(folder)
    source = " ".join(str(header.get(key, "")) for key in ("backbone", "weights_sha256", "grid"))
    splits = [_attach(split, folder, header["splits"], source) for split in dataset.splits.values()]
    if all(split.features is None for split in splits):
        raise InputError(f"{folder}: has features for none of {', '.join(dataset.splits)}.")
    return replace(with_splits(dataset, splits), alike=_alike(header, folder / HEADER))


def _alike(header: dict[str, Any], where: Path) -> tuple[tuple[tuple[str, str], ...], ...] | None:
    told = header.get("alike")
    if told is None:  # there were no pictures; earlier versions did not look
        return None
    try:
        return tuple(tuple((str(s), str(name)) for s, name in several) for several in told)
    except (TypeError, ValueError):
        raise InputError(f"{where}: 'alike' is not a list of images, each [split, name].") from None


def _attach(split: Split, folder: Path, entries: dict[str, Any], source: str) -> Split:
    where = f"{folder / HEADER}, split '{split.name}'"
    entry = entries.get(split.name)
    if entry is None:
        return replace(split, features=None)  # asking for its features names the split
    names = entry.get("images") if isinstance(entry, dict) else None
    if not isinstance(names, list) or not isinstance(entry.get("file"), str):
        raise InputError(f"{where}: needs 'file' and 'images'.")
    if Path(entry["file"]).name != entry["file"]:
        raise InputError(f"{where}: 'file' is a name in this folder, not {entry['file']!r:.80}.")
    file = folder / entry["file"]
    array = open_features(file)
    if len(array) != len(names):
        raise InputError(f"{file}: {len(array):,} rows for the {len(names):,} images of {where}.")
    row_of = {name: row for row, name in enumerate(names)}
    missing = [name for name in split.image_names if name not in row_of]
    if missing:
        raise InputError(
            f"{where}: no features for {len(missing):,} of {split.num_images:,} images, "
            f"the first of them {missing[0][:80]}; {_why_missing(entry)}"
        )
    _refuse_other_bytes(file, entry)
    _refuse_other_pictures(split, names, entry, where)
    rows = np.array([row_of[name] for name in split.image_names], dtype=np.int64)
    return replace(split, features=ArrayFeatures(file, array, rows, source))


def _made_from(entry: dict[str, Any]) -> dict[str, Any]:
    told = entry.get("made_from")
    return told if isinstance(told, dict) else {}  # earlier versions did not say


def _why_missing(entry: dict[str, Any]) -> str:
    if _made_from(entry).get("limit") is not None:
        return "they were a try with a `limit`: run `simgrad features` again without it."
    return _AGAIN


def _refuse_other_bytes(file: Path, entry: dict[str, Any]) -> None:
    told = entry.get("content")
    if told is not None and told != content_hash(file):
        raise InputError(
            f"{file}: is not what `simgrad features` wrote: damaged or changed since; {_AGAIN}"
        )


def _refuse_other_pictures(
    split: Split, names: list[str], entry: dict[str, Any], where: str
) -> None:
    """Pictures that were put away are not looked at, nor those of some of the images alone."""
    told = _made_from(entry).get("pictures")
    if told is None or split.pictures is None or names != list(split.image_names):
        return
    if told != split.pictures.content():
        raise InputError(
            f"{where}: the pictures are not those that the features were computed from; {_AGAIN}"
        )
