"""What a run was trained on: recorded when it begins, compared whenever its data are opened.

The record says how to open the data again, and has their fingerprint. Data that changed are
refused, because results would be wrong without a word; whoever means other data says so
(`--data`). What an earlier version recorded cannot always be compared: that is said.

What the test is about, a split and a protocol, is known before a run begins, so that a test that is
not possible is told then, and not at the end.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Origin, Split
from simgrad.data.fingerprint import changed
from simgrad.data.opening import open_dataset
from simgrad.evaluation.protocols import Protocol, find_protocol
from simgrad.runs.recipe import Recipe

_GIVEN = "given in Python: "  # instead of a place, where a run got data that no place has


def record_of(dataset: Dataset) -> dict[str, Any]:
    """What run.json says of the data."""
    origin = None if dataset.origin is None else dataclasses.asdict(dataset.origin)
    return {"name": dataset.name, "layout": dataset.layout, "origin": origin}


def trained_on(recipe: Recipe, dataset: Dataset | None) -> Recipe:
    """The recipe with the data that are really used, where they were handed over."""
    if dataset is None:
        return recipe
    origin = dataset.origin
    if recipe.resplit not in (None, origin and origin.resplit):
        raise InputError(
            "resplit is for data that the recipe names; of data that are handed over, draw other "
            f"splits: open_dataset(..., resplit={recipe.resplit!r})."
        )
    if recipe.train_images not in (None, origin and origin.train_images):
        raise InputError(
            "train_images is for data that the recipe names; of data that are handed over, open a "
            f"part: open_dataset(..., train_images={recipe.train_images})."
        )
    if origin is None:
        return recipe.replace(data=f"{_GIVEN}{dataset.name}", features=None, skip=None)
    return recipe.replace(
        data=origin.data,
        features=origin.features,
        skip=origin.skip,
        train_images=origin.train_images,
        resplit=origin.resplit,
    )


def differences(info: dict[str, Any], dataset: Dataset) -> list[str]:
    """What of a data set is not as run.json recorded it, in words."""
    recorded = info.get("data_fingerprint")
    return [] if recorded is None else changed(recorded, dataset)


def same_data(
    info: dict[str, Any], dataset: Dataset, where: Path, cure: str = "give another folder"
) -> None:
    """Refuse to go on with other data than something began with."""
    found = differences(info, dataset)
    if found:
        raise InputError(
            f"{where}: made with other data than {dataset.name} as it is now: "
            f"{', '.join(found)} differ. Put the data back, or {cure}."
        )


def open_data(
    recipe: Recipe,
    info: dict[str, Any],
    where: Path,
    data: str | None = None,
    features: str | None = None,
    skip: str | None = None,
) -> Dataset:
    """The data of a run; `data` are others, meant to be."""
    if data is not None:
        dataset = open_dataset(data, features=features, skip=skip)
        found = differences(info, dataset)
        if found:
            _say(f"{where}: {data} is not what it was trained on: {', '.join(found)} differ.")
        return dataset
    if features is not None or skip is not None:
        raise InputError("`features` and `skip` belong to `data`: give that, too.")
    dataset = _again(recipe, info, where)
    found = differences(info, dataset)
    if found and "dataset" not in info:
        _say(
            f"{where}: an earlier version of simgrad trained it, and whether {recipe.data} is "
            f"still what it was trained on cannot be told ({', '.join(found)})."
        )
    elif found:
        raise InputError(
            f"{where}: its data have changed since it was trained ({', '.join(found)} of "
            f"{dataset.name}), so results would be of something else. Put them back, or give "
            f"`data={recipe.data}` to use them as they are now."
        )
    return dataset


def _again(recipe: Recipe, info: dict[str, Any], where: Path) -> Dataset:
    record = info.get("dataset")
    if recipe.data.startswith(_GIVEN):
        name = recipe.data.removeprefix(_GIVEN)
        raise InputError(
            f"{where}: it was trained on data that were put together in Python ('{name[:80]}'), "
            "which nobody can open again. Give data of the same kind with `data`."
        )
    origin = record.get("origin") if isinstance(record, dict) else None
    if not isinstance(origin, dict) or origin.get("data") != recipe.data:
        return recipe.dataset()
    try:
        told = Origin(**origin)
    except TypeError:
        raise InputError(f"{where}: run.json does not say how its data were opened.") from None
    return open_dataset(
        told.data,
        features=told.features,
        skip=told.skip,
        layout=told.layout,
        published=told.published,
        train_images=told.train_images,
        resplit=told.resplit,
    )


def _say(text: str) -> None:
    warnings.warn(text, stacklevel=3)


@dataclass(frozen=True)
class Tested:
    """What a test is about."""

    split: Split
    protocol: Protocol

    def __str__(self) -> str:
        return tested_words([self.to_dict()])[0]

    def to_dict(self) -> dict[str, Any]:
        """As run.json keeps it."""
        folds = self.protocol.fold(self.split.num_images, self.split.image_of_caption)
        return {
            "dataset": self.split.dataset,
            "split": self.split.name,
            "protocol": self.protocol.name,
            "images": sum(len(fold.images) for fold in folds),
            "captions": sum(len(fold.captions) for fold in folds),
            "folds": len(folds),
        }


def what_is_tested(recipe: Recipe, dataset: Dataset) -> Tested | None:
    """What the test will be about; None: the data have no test split, and none was asked for."""
    name, protocol = recipe.tested_split(dataset), find_protocol(recipe.protocol)
    if name not in dataset.splits and recipe.test_split is None and protocol.images is None:
        return None
    split = dataset.split(name)
    try:
        protocol.check(split.num_images, split.image_of_caption)
    except InputError as error:
        raise InputError(f"{dataset.name}, split '{name}': {error}") from None
    return Tested(split, protocol)


def tested_words(told: Sequence[dict[str, Any]]) -> list[str]:
    """`coco_precomp, split testall: 5,000 images, 25,000 captions, mean over 5 folds (..)`.

    Splits that differ in how many captions they have alone are told in one.
    """
    alike: dict[tuple[str, str], list[int]] = {}
    for one in told:
        before = f"{one['dataset']}, split {one['split']}: {one['images']:,} images"
        folds = f", mean over {one['folds']} folds" if one["folds"] > 1 else ""
        after = f"{folds} (protocol {one['protocol']})"
        alike.setdefault((before, after), []).append(one["captions"])
    return [f"{b}, {_from_to(captions)} captions{a}" for (b, a), captions in alike.items()]


def _from_to(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
