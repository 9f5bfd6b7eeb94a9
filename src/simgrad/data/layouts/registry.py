"""Which layouts there are on disk, and which one a path has.

A layout is a module with `recognises(path) -> bool` and `read(path, log, published) -> Dataset`,
imported only when a path is looked at.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset
from simgrad.data.log import Log


@dataclass(frozen=True)
class Layout:
    """A layout: its name, its module in simgrad.data, and what it looks like."""

    name: str
    module: str
    description: str


# In the order in which they are tried: the most particular first.
LAYOUTS = (
    Layout("features", "features", "features.json + SPLIT.npy, from `simgrad features`"),
    Layout("huggingface", "huggingface", "a data set saved by Hugging Face's save_to_disk"),
    Layout("webdataset", "webdataset", "SPLIT-0000.tar shards of KEY.jpg + KEY.txt or KEY.json"),
    Layout("vse-infinity", "vse_infinity", "id_mapping.json, precomp/ and images"),
    Layout("precomp", "precomp", "SPLIT_caps.txt + SPLIT_ims.npy: vectors or regions"),
    Layout("karpathy", "karpathy", "dataset_*.json + images (Flickr8k, Flickr30k, COCO)"),
    Layout("x-vlm", "xvlm", "*_train.json, *_val.json, *_test.json lists of image, caption"),
    Layout("captions", "captions", "images + captions.csv, .tsv, .jsonl or .parquet"),
    Layout("pairs", "pairs", "IMAGE.jpg + IMAGE.txt, a caption per line"),
)


def read(path: Path, log: Log, *, layout: str | None, published: bool) -> Dataset:
    """Read a path in its layout, or in the one asked for."""
    if not path.exists():
        raise InputError(
            f"{path}: there is no such file or folder. `simgrad datasets` lists what can be read; "
            "'scenes' needs no files."
        )
    chosen = _named(layout) if layout else recognise(path)
    dataset: Dataset = _module(chosen).read(path, log, published)
    if not dataset.splits and not log.problems:
        raise InputError(
            f"{path}: nothing there is of the layout {chosen.name} ({chosen.description})."
        )
    if not any(split.num_captions for split in dataset.splits.values()) and not log.collect:
        raise InputError(f"{path}: recognised as {dataset.layout}, but it has no captions.")
    return dataset


def recognise(path: Path) -> Layout:
    """The layout of a path; an error says what was looked for."""
    for layout in LAYOUTS:
        if _module(layout).recognises(path):
            return layout
    inside = _data_sets_inside(path)
    if inside:
        raise InputError(f"{path} holds several data sets: choose {', '.join(inside)}.")
    raise InputError(
        f"{path}: no known layout. `simgrad datasets` lists the layouts and what each looks like."
    )


def _data_sets_inside(path: Path) -> list[str]:
    if not path.is_dir():
        return []
    folders = sorted(child for child in path.iterdir() if child.is_dir())[:50]
    return [
        str(folder)
        for folder in folders
        if any(_module(layout).recognises(folder) for layout in LAYOUTS)
    ]


def _named(name: str) -> Layout:
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    known = ", ".join(layout.name for layout in LAYOUTS)
    raise InputError(f"there is no layout '{name[:60]}' (there are: {known}).")


def _module(layout: Layout) -> Any:
    return importlib.import_module(f"simgrad.data.layouts.{layout.module}")
