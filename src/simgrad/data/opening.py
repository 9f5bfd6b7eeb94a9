"""Open a data set: a file or folder in any known layout, or what a spec describes."""

import dataclasses
from pathlib import Path

from simgrad.data.arrays import HEADER, attach_features, read_header
from simgrad.data.base import Dataset, Origin, with_splits
from simgrad.data.layouts.base import absolute, open_place
from simgrad.data.log import Log
from simgrad.data.resplit import read_resplit
from simgrad.data.resplit import resplit as split_anew
from simgrad.data.subset import drawn

__all__ = ["EMBEDDED", "absolute", "embedded", "open_dataset", "open_logged"]

EMBEDDED = "scenes"  # the name of the embedded world


def open_dataset(
    name_or_path: str | Path,
    *,
    features: str | Path | None = None,
    layout: str | None = None,
    skip: str | Path | None = None,
    published: bool = False,
    train_images: int | None = None,
    resplit: str | None = None,
) -> Dataset:
    """Open a folder or file on disk, or a spec that needs no files (`scenes(train=100)`).

    `features`: a folder that `simgrad features` wrote, used instead of pictures.
    `layout`: one of `simgrad datasets --layouts`, where recognising it is not wanted.
    `skip`: a list written by `simgrad datasets --fix`; its items are omitted.
    `published`: five captions per image in val and test, at most 5,000 in the val split of
    precomputed layouts, as the published evaluations do. Otherwise everything is kept.
    `resplit`: other train, val and test splits of the same images, `new(draw=2)`.
    `train_images`: use this many images of the train split, always the same ones; else all.

    Examples:
        >>> dataset = simgrad.data.open_dataset("scenes(train=8, val=1, test=1)")  # or a folder
        >>> train = dataset.split("train")
        >>> train.num_images, len(train.captions)
        (8, 40)
    """
    log = Log.read(skip)
    dataset = open_logged(name_or_path, log, features=features, layout=layout, published=published)
    places = [None if place is None else absolute(str(place)) for place in (features, skip)]
    origin = Origin(
        absolute(str(name_or_path)), places[0], places[1], layout, published, train_images, resplit
    )
    if resplit is not None:
        dataset = split_anew(dataset, read_resplit(resplit))
    if train_images is not None:
        dataset = _part(dataset, train_images)
    return dataclasses.replace(dataset, origin=origin)


def _part(dataset: Dataset, train_images: int) -> Dataset:
    """The data with some of their training images."""
    train = drawn(dataset.split("train"), train_images)
    identity = dataset.identity and f"{dataset.identity} train_images={train_images}"
    splits = [train if split.name == "train" else split for split in dataset.splits.values()]
    return dataclasses.replace(with_splits(dataset, splits), identity=identity)


def open_logged(
    name_or_path: str | Path,
    log: Log,
    *,
    features: str | Path | None = None,
    layout: str | None = None,
    published: bool = False,
) -> Dataset:
    """`open_dataset` with a log of one's own, which may collect problems instead of raising."""
    if features is None:
        return open_place(str(name_or_path), log, layout, published)
    folder = Path(features).expanduser()
    log.leave_out(read_header(folder)["skip"], folder / HEADER)
    return attach_features(open_place(str(name_or_path), log, layout, published), folder)


def embedded(reads: str, **sizes: int) -> str:
    """The spec of an embedded world for what a model reads: global, regions or pixels."""
    settings = ", ".join(f"{name}={value}" for name, value in {"features": reads, **sizes}.items())
    return f"{EMBEDDED}({settings})"
