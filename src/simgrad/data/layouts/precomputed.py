"""Precomputed features of VSE++ (vectors) and of SCAN, VSRN, BFAN, AOQ (36 regions).

SPLIT_caps.txt: a caption per line, the captions of an image on consecutive lines. SPLIT_ims.npy:
a row per image, or a row per caption (rows repeated). SPLIT_ids.txt, where there is one: the
image's id, per image or per caption.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.data.arrays import ArrayFeatures, open_features
from simgrad.data.base import Dataset, Rows, Split
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import PUBLISHED_CAPTIONS, read_lines, split_name
from simgrad.data.log import Log
from simgrad.data.subset import take

_ENDING = "_caps.txt"
_PUBLISHED_VAL = 5000  # captions that the published loaders keep of the dev split


@declare(
    "precomputed",
    paper="Faghri et al., BMVC 2018; Lee et al., ECCV 2018",
    description="SPLIT_caps.txt + SPLIT_ims.npy: vectors or regions",
)
@dataclass(frozen=True)
class Precomputed(Layout):
    """Captions by line, features by row."""

    def parts(self, path: Path) -> dict[str, bool]:
        return {
            f"SPLIT{_ENDING}": path.is_dir() and any(path.glob(f"*{_ENDING}")),
            "SPLIT_ims.npy": path.is_dir() and any(path.glob("*_ims.npy")),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        splits: dict[str, Split] = {}
        notes: list[str] = []
        for name in split_files(path):
            try:
                array = open_features(path / f"{name}_ims.npy")
                split = read_split(path, name, array, log, path.name)
            except InputError as error:
                log.whole_file(path / f"{name}{_ENDING}", error)
                continue
            splits[split.name] = keep_published(split, notes) if published else split
        return Dataset(path.name, "", splits, tuple(notes))


def split_files(folder: Path) -> list[str]:
    """The splits with captions: train, dev, test, then others."""
    names = [file.name.removesuffix(_ENDING) for file in sorted(folder.glob(f"*{_ENDING}"))]
    order = ["train", "dev", "val", "test", "testall"]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


@dataclass(frozen=True)
class Grouping:
    """Which image each caption line belongs to, and which array row each image has."""

    image_of_line: Rows
    row_of_image: Rows | None  # None: image i is row i
    names: list[str]


def read_split(
    folder: Path, name: str, array: npt.NDArray[Any] | None, log: Log, dataset: str
) -> Split:
    """One split; without an array, its images come from SPLIT_ids.txt alone."""
    captions_file, ids_file = folder / f"{name}{_ENDING}", folder / f"{name}_ids.txt"
    lines = read_lines(captions_file, log)
    ids = _read_ids(ids_file, log) if ids_file.is_file() else None
    if array is None and ids is None:
        raise InputError(f"{ids_file}: there is no such file, so captions have no images.")
    rows = len(array) if array is not None else len(ids or [])
    grouping = _group(captions_file, len(lines), rows, ids, array, name)
    kept = [i for i, line in enumerate(lines) if line is not None]
    features = None
    if array is not None:
        file = folder / f"{name}_ims.npy"
        features = ArrayFeatures(file, array, grouping.row_of_image)
    return Split(
        dataset=dataset,
        name=split_name(name),
        captions=[lines[i] or "" for i in kept],
        image_of_caption=grouping.image_of_line[kept],
        image_names=grouping.names,
        features=features,
        caption_ids=[str(i) for i in kept],
        caption_places=lambda row: f"{captions_file}, line {kept[row] + 1}",
    )


def _read_ids(file: Path, log: Log) -> list[str]:
    ids = [(line or "").strip() for line in read_lines(file, log)]
    for number, identifier in enumerate(ids, 1):
        if not identifier:
            raise InputError(f"{file}, line {number}: no image id.")
    return ids


def _group(
    file: Path,
    lines: int,
    rows: int,
    ids: list[str] | None,
    array: npt.NDArray[Any] | None,
    name: str,
) -> Grouping:
    if rows == 0 or lines % rows:
        raise InputError(
            f"{file}: {lines:,} captions for {rows:,} rows in {name}_ims.npy or {name}_ids.txt; "
            "the captions of an image are consecutive lines, so one must divide the other."
        )
    if ids is not None and len(ids) not in (rows, lines):
        raise InputError(
            f"{file.parent / f'{name}_ids.txt'}: {len(ids):,} ids for {rows:,} rows "
            f"and {lines:,} captions."
        )
    each = lines // rows
    if each == 1:
        each = _repeats(ids, array, lines)
        first = np.arange(0, lines, each, dtype=np.int64)
        row_of_image = first if each > 1 and array is not None else None
    else:
        row_of_image = None
    images = lines // each
    if ids is None:
        names = [f"{name}-{i}" for i in range(images)]
    else:
        step = len(ids) // images
        names = ids[::step]
        for line, identifier in enumerate(ids):
            if identifier != names[line // step]:
                raise InputError(
                    f"{file.parent / f'{name}_ids.txt'}, line {line + 1}: the id changes within "
                    f"the {step} captions of an image."
                )
    return Grouping(np.arange(lines, dtype=np.int64) // each, row_of_image, names)


def _repeats(ids: list[str] | None, array: npt.NDArray[Any] | None, rows: int) -> int:
    """With a row per caption: how many consecutive rows are one image (five, or one)."""
    each = PUBLISHED_CAPTIONS
    if rows % each or rows == 0:
        return 1
    if ids is not None:
        groups = (ids[i : i + each] for i in range(0, rows, each))
        return each if all(len(set(group)) == 1 for group in groups) else 1
    if array is None:
        return 1
    # Repeated rows are equal byte by byte; a few groups across the file tell.
    probes = np.unique(np.linspace(0, rows // each - 1, 32).astype(np.int64)) * each
    same = all((array[i : i + each] == array[i]).all() for i in probes)
    return each if same else 1


def keep_published(split: Split, notes: list[str]) -> Split:
    """The dev split as the published loaders cut it: its first 5,000 captions."""
    if split.name != "val" or split.num_captions <= _PUBLISHED_VAL:
        return split

    captions = np.arange(split.num_captions) < _PUBLISHED_VAL
    images = np.zeros(split.num_images, dtype=bool)
    images[split.image_of_caption[captions]] = True
    notes.append(f"val: cut to {_PUBLISHED_VAL:,} of {split.num_captions:,} captions")
    return take(split, images, captions)
