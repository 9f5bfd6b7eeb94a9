"""Features in .npy files, memory-mapped: a batch reads its own rows and nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.derived import content_hash
from simgrad.core.errors import InputError
from simgrad.core.files import open_array, sha256
from simgrad.data.base import Rows


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
