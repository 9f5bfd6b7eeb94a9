"""Mined negatives: the lists, their folder, and what they were made from.

A folder of ours has i2t.npy, t2i.npy and candidates.json, which tells the weights and the data that
the lists were mined with and the hashes of both. AOQ's own folders (`aoq.py`) are read as well.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, open_array, sha256
from simgrad.data.base import Split
from simgrad.mining.product import Lists

INFO = "candidates.json"
_BLOCK = 4096  # rows that are looked at together


@dataclass(frozen=True)
class Candidates:
    """Mined negatives, most similar first; -1 where a filter left fewer than `depth`."""

    i2t: Lists  # (images, depth) captions
    t2i: Lists  # (captions, depth) images
    info: dict[str, Any]
    where: str = "candidates"  # what an error calls them

    def save(self, folder: str | Path) -> None:
        """Write i2t.npy, t2i.npy and candidates.json, the last one when all is there."""
        folder = Path(folder)
        (folder / INFO).unlink(missing_ok=True)  # it speaks of the lists before
        hashes = {name: write_lists(folder / f"{name}.npy", lists) for name, lists in self._sides()}
        counts = {"images": len(self.i2t), "captions": len(self.t2i)}
        write_checked(folder / INFO, {**self.info, **counts, "files": hashes})

    @staticmethod
    def load(folder: str | Path) -> "Candidates":
        """Read what `save` wrote, memory-mapped; refused where they do not fit or were damaged."""
        folder = Path(folder)
        if not (folder / INFO).is_file():
            raise InputError(f"{folder}: no finished candidate lists here; run `simgrad mine`.")
        info = read_checked(folder / INFO)
        if not isinstance(info, dict):
            raise InputError(f"{folder / INFO}: says nothing of the lists; run `simgrad mine`.")
        hashes, lists = info.pop("files", {}), {}
        for name in ("i2t", "t2i"):
            path = folder / f"{name}.npy"
            lists[name] = open_array(path)
            if name in hashes and sha256(path) != hashes[name]:
                raise InputError(f"{path}: damaged since it was mined; run `simgrad mine` again.")
        found = Candidates(lists["i2t"], lists["t2i"], info, str(folder))
        found.require_tables()
        return found

    def check(self, split: Split) -> None:
        """Refuse lists that cannot be of this split."""
        counts, wanted = self._counts(), (split.num_images, split.num_captions)
        if counts != wanted:
            raise InputError(
                f"{self.where}: lists for {counts[0]:,} images and {counts[1]:,} captions, but the "
                f"{split.name} split has {wanted[0]:,} and {wanted[1]:,}. Mine again."
            )
        for name, lists in self._sides():
            others = wanted[1] if name == "i2t" else wanted[0]
            for start in range(0, len(lists), _BLOCK):
                block = np.asarray(lists[start : start + _BLOCK])
                query = np.arange(start, start + len(block))[:, None]
                wrong = (block < -1) | (block >= others)
                _refuse(wrong, f"{self.where}: {name}", start, f"outside the {others:,} there are")
                rows = split.image_of_caption
                own = rows[block] == query if name == "i2t" else block == rows[query]
                _refuse(own & (block >= 0), f"{self.where}: {name}", start, "of its own pair")

    def _sides(self) -> tuple[tuple[str, Lists], ...]:
        return ("i2t", self.i2t), ("t2i", self.t2i)

    def _counts(self) -> tuple[int, int]:
        return len(self.i2t), len(self.t2i)

    def require_tables(self) -> None:
        """Refuse what is not two tables of whole numbers."""
        for name, lists in self._sides():
            if lists.ndim != 2 or lists.dtype.kind not in "iu" or not lists.shape[1]:
                raise InputError(
                    f"{self.where}: {name}: candidates are whole numbers of shape (queries, depth),"
                    f" not {lists.dtype} {lists.shape}."
                )


def _refuse(wrong: Any, where: str, start: int, what: str) -> None:
    rows = np.flatnonzero(wrong.any(axis=1))
    if len(rows):
        raise InputError(f"{where}, row {start + int(rows[0])}: a candidate {what}. Mine again.")


def write_lists(path: Path, lists: Lists) -> str:
    """Write one table; the hash of its file."""
    whole = np.ascontiguousarray(lists, dtype=np.int32)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        # Not np.save: it does not say why a disk refuses.
        described = np.lib.format.header_data_from_array_1_0(whole)
        np.lib.format.write_array_header_1_0(file, described)
        file.write(whole.data)
    return sha256(path)
