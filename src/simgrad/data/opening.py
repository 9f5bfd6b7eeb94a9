"""Open a data set: the embedded world, or a file or folder in any known layout."""

import dataclasses
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Origin
from simgrad.data.feature_folder import attach_features
from simgrad.data.layouts import registry as layouts
from simgrad.data.log import Log
from simgrad.data.scenes.dataset import Scenes, open_scenes


def open_dataset(
    name_or_path: str | Path,
    *,
    features: str | Path | None = None,
    layout: str | None = None,
    skip: str | Path | None = None,
    published: bool = False,
) -> Dataset:
    """Open the embedded world (`scenes`, `scenes(train=100)`) or a folder or file on disk.

    `features`: a folder that `simgrad features` wrote, used instead of pictures.
    `layout`: one of `simgrad datasets`' names, where recognising it is not wanted.
    `skip`: a list written by `simgrad datasets --fix`; what is on it is left out.
    `published`: five captions per image in val and test, at most 5,000 in the val split of
    precomputed layouts, as the published evaluations do. Otherwise everything is kept.
    """

    dataset = open_logged(
        name_or_path, Log.read(skip), features=features, layout=layout, published=published
    )
    given = (features, skip)
    places = [None if place is None else absolute(str(place)) for place in given]
    origin = Origin(absolute(str(name_or_path)), places[0], places[1], layout, published)
    return dataclasses.replace(dataset, origin=origin)


def open_logged(
    name_or_path: str | Path,
    log: Log,
    *,
    features: str | Path | None = None,
    layout: str | None = None,
    published: bool = False,
) -> Dataset:
    """`open_dataset` with a log of one's own, which may collect problems instead of raising."""

    text = str(name_or_path)
    try:
        Path(text).expanduser().exists()
    except (OSError, RuntimeError) as error:  # too long, a circle of links, nobody's home
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{text:.120}: not the name of a data set ({reason}).") from None
    if text.split("(")[0].strip() == "scenes" and not Path(text).exists():
        dataset: Dataset = open_scenes(text)
    else:
        path = Path(text).expanduser()
        log.root = path if path.is_dir() else path.parent
        dataset = layouts.read(path, log, layout=layout, published=published)
    dataset = log.apply(dataset)
    if features is not None:
        dataset = attach_features(dataset, Path(features).expanduser())
    return dataset


def absolute(text: str) -> str:
    """The same data from anywhere: a path becomes absolute, a spec stays as it is."""
    path = Path(text).expanduser()
    try:
        return str(path.absolute()) if path.exists() else text
    except (OSError, ValueError):
        return text


EMBEDDED = "scenes"  # the name of the embedded world


def embedded(reads: str, **sizes: int) -> str:
    """The spec of an embedded world for what a model reads: global, regions or pixels."""
    return str(Scenes(features=reads, **sizes))
