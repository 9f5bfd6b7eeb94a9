"""What the test of a run is about: which split of its data, by which protocol.

It is known before a run begins, so that a test that is not possible is told then, and not at the
end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Split
from simgrad.evaluation.protocols import Protocol, find_protocol
from simgrad.runs.recipe import Recipe


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
