"""Mined negatives: the lists, and their folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, open_array, read_json, write_json
from simgrad.mining.product import Lists


@dataclass(frozen=True)
class Candidates:
    """Mined negatives, most similar first; -1 where a filter left fewer than `depth`."""

    i2t: Lists  # (images, depth) captions
    t2i: Lists  # (captions, depth) images
    info: dict[str, Any]

    def save(self, folder: str | Path) -> None:
        """Write i2t.npy, t2i.npy and candidates.json, the last one when all is there."""
        folder = Path(folder)
        (folder / "candidates.json").unlink(missing_ok=True)  # it speaks of the lists before
        for name, lists in (("i2t", self.i2t), ("t2i", self.t2i)):
            with atomic_path(folder / f"{name}.npy") as path, open(path, "wb") as file:
                np.save(file, lists)
        write_json(folder / "candidates.json", self.info)

    @staticmethod
    def load(folder: str | Path) -> "Candidates":
        """Read what `save` wrote; memory-mapped."""
        folder = Path(folder)
        if not (folder / "candidates.json").is_file():
            raise InputError(f"{folder}: no finished candidate lists here; run `simgrad mine`.")
        lists = [open_array(folder / f"{name}.npy") for name in ("i2t", "t2i")]
        for name, array in zip(("i2t", "t2i"), lists, strict=True):
            if array.ndim != 2 or array.dtype.kind != "i":
                raise InputError(f"{folder / name}.npy: not a table of candidate numbers.")
        return Candidates(lists[0], lists[1], read_json(folder / "candidates.json"))
