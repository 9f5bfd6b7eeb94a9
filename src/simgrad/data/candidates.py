"""Mined negatives: the lists, their folder, and what they were made from.

A folder of ours has i2t.npy, t2i.npy and candidates.json, which tells the weights and the data that
the lists were mined with and the hashes of both; where asked for, how similar candidates are, in
scores_i2t.npy and scores_t2i.npy.

AOQ's own folders have FOLDER/i2t_TAG.npy, int32 (images, 2000): caption rows by falling similarity,
own captions left out; and FOLDER/t2i_TAG.npy, int32 (captions, 400): image rows, the own image left
out. They are read and written as well.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, open_array, sha256
from simgrad.core.tables import TableFile, Tabular
from simgrad.data.base import Rows, Split

Lists = npt.NDArray[np.int32]  # (queries, depth) rows of candidates
Similarities = npt.NDArray[np.float32]  # (queries, depth)
INFO = "candidates.json"
SCORES = ("scores_i2t", "scores_t2i")
_BLOCK = 4096  # rows that are looked at together


_SIDES = {"i2t": "captions of images", "t2i": "images of captions"}
_TOLD = {"own pairs": "positive", "hardest": "hardest", "kept": "negative"}


@dataclass(frozen=True, repr=False)
class Candidates(Tabular):
    """Mined negatives, most similar first; -1 where a filter left fewer than `depth`."""

    i2t: Lists  # (images, depth) captions
    t2i: Lists  # (captions, depth) images
    info: dict[str, Any]
    where: str = "candidates"  # what an error calls them
    i2t_scores: Similarities | None = None  # how similar each is, where it was asked for
    t2i_scores: Similarities | None = None

    def as_table(self) -> TableFile:
        """How many there are, and where it was measured how similar they are."""
        measured = self.info.get("statistics", {})
        rows = []
        for way, lists in self._sides():
            cells = [f"{len(lists):,}", f"{lists.shape[1]:,}"]
            if way in measured:
                means = [measured[way][kind].get("mean") for kind in _TOLD.values()]
                cells += ["–" if mean is None else f"{mean:.3f}" for mean in means]
            rows.append((f"{way}: {_SIDES[way]}", *cells))
        columns = ("mined negatives", "queries", "each", *(_TOLD if measured else ()))
        told = "Own pairs, hardest, kept: how similar they are, on average." if measured else ""
        held = "i2t, t2i: rows, the most similar first, -1: none left; save(folder) keeps them."
        return TableFile(columns, tuple(rows), notes=tuple(filter(None, [told, held])))

    def save(self, folder: str | Path) -> None:
        """Write i2t.npy, t2i.npy and candidates.json, the last one when all is there."""
        folder = Path(folder)
        (folder / INFO).unlink(missing_ok=True)  # it speaks of the lists before
        tables: list[tuple[str, Any]] = [*self._sides(), *self._scores()]
        hashes = {name: write_lists(folder / f"{name}.npy", table) for name, table in tables}
        counts = {"images": len(self.i2t), "captions": len(self.t2i)}
        write_checked(folder / INFO, {**self.info, **counts, "files": hashes})

    @staticmethod
    def load(folder: str | Path) -> "Candidates":
        """Read what `save` wrote, memory-mapped; refused where they do not fit or were damaged."""
        folder = Path(folder)
        if not (folder / INFO).is_file():
            raise InputError(f"{folder}: no finished candidate lists here; run `simgrad mine`.")
        info = read_checked(folder / INFO)
        # Of versions before the hashes there is the depth.
        if not isinstance(info, dict) or not ("depth" in info or "files" in info):
            raise InputError(f"{folder / INFO}: says nothing of the lists; run `simgrad mine`.")
        hashes, tables = info.pop("files", {}), {}
        if not isinstance(hashes, dict):
            raise InputError(f"{folder / INFO}: 'files' are not hashes; run `simgrad mine` again.")
        # Scores are there where they were asked for.
        for name in ("i2t", "t2i", *(name for name in SCORES if name in hashes)):
            path = folder / f"{name}.npy"
            tables[name] = open_array(path)
            if name in hashes and sha256(path) != hashes[name]:
                raise InputError(f"{path}: damaged since it was mined; run `simgrad mine` again.")
        scores = (tables.get(name) for name in SCORES)
        found = Candidates(tables["i2t"], tables["t2i"], info, str(folder), *scores)
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

    def _scores(self) -> list[tuple[str, Similarities]]:
        both = zip(SCORES, (self.i2t_scores, self.t2i_scores), strict=True)
        return [(name, scores) for name, scores in both if scores is not None]

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
        for name, scores in self._scores():
            lists = dict(self._sides())[name.removeprefix("scores_")]
            if scores.shape != lists.shape or scores.dtype.kind != "f":
                raise InputError(
                    f"{self.where}: {name}: similarities have the shape of their lists, "
                    f"{lists.shape}, not {scores.dtype} {scores.shape}."
                )


def _refuse(wrong: Any, where: str, start: int, what: str) -> None:
    rows = np.flatnonzero(wrong.any(axis=1))
    if len(rows):
        raise InputError(f"{where}, row {start + int(rows[0])}: a candidate {what}. Mine again.")


def write_lists(path: Path, table: Lists | Similarities) -> str:
    """Write one table; the hash of its file."""
    kind = np.float32 if table.dtype.kind == "f" else np.int32
    whole = np.ascontiguousarray(table, dtype=kind)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        # Not np.save: it does not say why a disk refuses.
        described = np.lib.format.header_data_from_array_1_0(whole)
        np.lib.format.write_array_header_1_0(file, described)
        file.write(whole.data)
    return sha256(path)


def open_candidates(place: str | Path) -> Candidates:
    """Lists that `simgrad mine` wrote, or AOQ's: a folder, or one of its files i2t_TAG.npy."""
    path = Path(place).expanduser()
    if path.is_file() and path.stem[:4] in ("i2t_", "t2i_"):
        return read_candidates(path.parent, path.stem[4:])
    tags = sorted(file.stem[4:] for file in path.glob("i2t_*.npy"))
    if (path / INFO).is_file() or not tags:
        return Candidates.load(path)
    if len(tags) > 1:
        choices = ", ".join(str(path / f"i2t_{tag}.npy") for tag in tags)
        raise InputError(f"{path}: holds lists of several data sets; give one of {choices}.")
    return read_candidates(path, tags[0])


def read_candidates(folder: str | Path, tag: str) -> Candidates:
    """Candidate lists as AOQ's code writes them, memory-mapped."""
    folder = Path(folder)
    i2t, t2i = (open_array(folder / f"{way}_{tag}.npy") for way in ("i2t", "t2i"))
    found = Candidates(i2t, t2i, {"layout": "aoq", "tag": tag}, str(folder / f"i2t_{tag}.npy"))
    found.require_tables()
    return found


def require_fives(own: Rows, tag: str) -> None:
    """Refuse data of which AOQ's code would take wrong captions for an image's."""
    if not np.array_equal(own, np.arange(len(own)) // 5):
        raise InputError(
            f"`aoq={tag}`: AOQ's code takes captions 0 to 4 for those of image 0, 5 to 9 for those "
            "of image 1 and so on, and in these data they are not. Leave `aoq` out: recipes of "
            "simgrad read our own lists."
        )


def write_candidates(folder: str | Path, tag: str, found: Candidates, own: Rows) -> None:
    """Write candidate lists as AOQ's code reads them: every list is full. `own`: captions' images.

    A list that a filter has shortened repeats its entries. One that is empty gets other items of
    the data, evenly: AOQ's code takes any number for a row.
    """
    found.require_tables()
    require_fives(own, tag)
    every = np.arange(len(found.i2t))
    sides = (("i2t", found.i2t, every, own), ("t2i", found.t2i, own, every))
    for name, lists, owner, image_of in sides:
        whole = _filled(np.asarray(lists), owner, image_of)
        write_lists(Path(folder) / f"{name}_{tag}.npy", whole)


def _filled(lists: Lists, owner: Rows, image_of: Rows) -> Lists:
    """Lists without -1. `owner` is each query's image, `image_of` that of each candidate."""
    full = lists.copy()
    for query in np.flatnonzero((lists < 0).any(axis=1)):
        there = lists[query][lists[query] >= 0]
        if not len(there):
            others = np.flatnonzero(image_of != owner[query])
            if not len(others):
                raise InputError(f"candidates, row {query}: the data have no other image.")
            there = others[np.linspace(0, len(others) - 1, lists.shape[1]).astype(np.int64)]
        full[query] = np.resize(there, lists.shape[1])
    return full
