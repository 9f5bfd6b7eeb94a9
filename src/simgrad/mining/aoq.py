"""AOQ's offline candidates: the hardest captions of each image and images of each caption.

FOLDER/i2t_TAG.npy, int32 (images, 2000): caption rows by falling similarity, own captions left
out. FOLDER/t2i_TAG.npy, int32 (captions, 400): image rows, the own image left out.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, open_array
from simgrad.data.base import Split


@dataclass(frozen=True)
class Candidates:
    """Candidate rows of a split, hardest first."""

    i2t: npt.NDArray[Any]  # (images, depth) caption rows
    t2i: npt.NDArray[Any]  # (captions, depth) image rows


def tag_of(name: str) -> str:
    """The tag of a data set: its name before the first underscore (coco_precomp -> coco)."""
    return name.split("_")[0]


def read_candidates(folder: str | Path, tag: str, split: Split | None = None) -> Candidates:
    """Candidate lists, memory-mapped; with a split, checked against it."""
    folder = Path(folder)
    files = folder / f"i2t_{tag}.npy", folder / f"t2i_{tag}.npy"
    i2t, t2i = open_array(files[0]), open_array(files[1])
    for file, array in zip(files, (i2t, t2i), strict=True):
        if array.ndim != 2 or array.dtype.kind not in "iu":
            raise InputError(
                f"{file}: candidates are whole numbers of shape (queries, depth), "
                f"not {array.dtype} {array.shape}."
            )
    if split is not None:
        _check(files[0], i2t, split.num_images, split.num_captions, "images", "captions")
        _check(files[1], t2i, split.num_captions, split.num_images, "captions", "images")
    return Candidates(i2t, t2i)


def _check(
    file: Path, array: npt.NDArray[Any], queries: int, others: int, of: str, among: str
) -> None:
    if len(array) != queries:
        raise InputError(f"{file}: {len(array):,} rows for {queries:,} {of}; made for other data?")
    for start in range(0, queries, 4096):
        block = array[start : start + 4096]
        wrong = np.flatnonzero((block < 0).any(axis=1) | (block >= others).any(axis=1))
        if len(wrong):
            raise InputError(
                f"{file}, row {start + int(wrong[0])}: points outside the {others:,} {among}."
            )


def write_candidates(
    folder: str | Path, tag: str, i2t: npt.NDArray[Any], t2i: npt.NDArray[Any]
) -> None:
    """Write candidate lists as AOQ's code reads them."""
    for name, array in (("i2t", i2t), ("t2i", t2i)):
        rows = np.asarray(array)
        if rows.ndim != 2 or rows.dtype.kind not in "iu":
            raise InputError(f"{name} candidates are whole numbers of shape (queries, depth).")
        with atomic_path(Path(folder) / f"{name}_{tag}.npy") as temporary:
            with open(temporary, "wb") as file:
                np.save(file, rows.astype(np.int32), allow_pickle=False)
