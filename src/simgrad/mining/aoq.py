"""AOQ's own files: the hardest captions of each image and images of each caption.

FOLDER/i2t_TAG.npy, int32 (images, 2000): caption rows by falling similarity, own captions left
out. FOLDER/t2i_TAG.npy, int32 (captions, 400): image rows, the own image left out.
"""

from pathlib import Path

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import open_array
from simgrad.data.base import Rows, Split
from simgrad.mining.candidates import INFO, Candidates, write_lists
from simgrad.mining.product import Lists


def tag_of(name: str) -> str:
    """The tag of a data set: its name before the first underscore (coco_precomp -> coco)."""
    return name.split("_")[0]


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


def read_candidates(folder: str | Path, tag: str, split: Split | None = None) -> Candidates:
    """Candidate lists as AOQ's code writes them, memory-mapped; with a split, checked."""
    folder = Path(folder)
    i2t, t2i = (open_array(folder / f"{way}_{tag}.npy") for way in ("i2t", "t2i"))
    found = Candidates(i2t, t2i, {"layout": "aoq", "tag": tag}, str(folder / f"i2t_{tag}.npy"))
    found.require_tables()
    if split is not None:
        found.check(split)
    return found


def write_candidates(folder: str | Path, tag: str, found: Candidates, split: Split) -> None:
    """Write candidate lists as AOQ's code reads them: every list is full.

    A list that a filter has shortened repeats its entries. One that is empty gets other items of
    the split, evenly: AOQ's code takes any number for a row.
    """
    found.require_tables()
    every, own = np.arange(split.num_images), split.image_of_caption
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
