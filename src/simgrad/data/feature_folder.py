"""Features that `simgrad features` wrote: features.json and one SPLIT.npy per split.

{"layout": "simgrad-features", "data": ..., "backbone": ..., "weights_sha256": ..., "grid": ...,
"splits": {split: {"file": "train.npy", "images": [names]}}}. Rows are found by the image's name.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.arrays import ArrayFeatures, open_features
from simgrad.data.base import Dataset, Split, with_splits

HEADER = "features.json"


def read_header(folder: Path) -> dict[str, Any]:
    file = folder / HEADER
    if not file.is_file():
        raise InputError(f"{file}: there is no such file; `simgrad features` writes such a folder.")
    value = read_json(file)
    if not isinstance(value, dict) or not isinstance(value.get("splits"), dict):
        raise InputError(f"{file}: not written by `simgrad features` (no 'splits').")
    return value


def attach_features(dataset: Dataset, folder: Path) -> Dataset:
    """The data set with features from a folder; every image must be there."""
    header = read_header(folder)
    source = " ".join(str(header.get(key, "")) for key in ("backbone", "weights_sha256", "grid"))
    splits = [_attach(split, folder, header["splits"], source) for split in dataset.splits.values()]
    if all(split.features is None for split in splits):
        raise InputError(f"{folder}: has features for none of {', '.join(dataset.splits)}.")
    return with_splits(dataset, splits)


def _attach(split: Split, folder: Path, entries: dict[str, Any], source: str) -> Split:
    where = f"{folder / HEADER}, split '{split.name}'"
    entry = entries.get(split.name)
    if entry is None:
        return replace(split, features=None)  # asking for its features names the split
    names = entry.get("images") if isinstance(entry, dict) else None
    if not isinstance(names, list) or not isinstance(entry.get("file"), str):
        raise InputError(f"{where}: needs 'file' and 'images'.")
    file = folder / entry["file"]
    array = open_features(file)
    if len(array) != len(names):
        raise InputError(f"{file}: {len(array):,} rows for the {len(names):,} images of {where}.")
    row_of = {name: row for row, name in enumerate(names)}
    missing = [name for name in split.image_names if name not in row_of]
    if missing:
        raise InputError(
            f"{where}: no features for {len(missing):,} of {split.num_images:,} images, "
            f"the first of them {missing[0][:80]}; run `simgrad features` into a new folder, "
            "without --limit."
        )
    rows = np.array([row_of[name] for name in split.image_names], dtype=np.int64)
    return replace(split, features=ArrayFeatures(file, array, rows, source))
