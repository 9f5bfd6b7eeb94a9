"""Protocols by name: which images and captions are ranked against which.

Published numbers are comparable only under one protocol. Each of these says in words what it is,
refuses data that it is not made for, and tells what it used.
"""

import itertools
from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.ranks import Integers


@dataclass(frozen=True)
class Fold:
    """The rows and columns of one fold."""

    images: Integers
    captions: Integers
    image_of_caption: Integers  # (captions,) counted within the fold

    def __str__(self) -> str:
        images, captions = self.images, self.captions
        return (
            f"images {images[0]:,}-{images[-1]:,} ({len(images):,}), "
            f"captions {captions.min():,}-{captions.max():,} ({len(captions):,})"
        )


@dataclass(frozen=True)
class Protocol:
    """One way to evaluate."""

    name: str
    what: str  # the images it is about
    images: int | None = None  # how many they are; None: any number
    captions: int | None = None  # of each image, the first so many; None: all
    folds: int = 1  # consecutive folds, ranked each on its own and averaged
    hint: str = ""  # where to find them
    splits: tuple[str, ...] = ("test",)  # what their split may be called, the surest name first

    def __str__(self) -> str:
        """In words: `5,000 test images of COCO, 5 captions each, mean over 5 folds of 1,000`."""
        parts = [self.what if self.images is None else f"{self.images:,} {self.what}"]
        if self.captions is not None:
            parts.append(f"{self.captions} captions each")
        if self.folds > 1:
            size = "" if self.images is None else f" of {self.images // self.folds:,}"
            parts.append(f"mean over {self.folds} folds{size}")
        return ", ".join(parts)

    def split_in(self, names: Container[str]) -> str:
        """The split that it is about, among those that some data have; the last name if none is."""
        return next((name for name in self.splits if name in names), self.splits[-1])

    def check(self, num_images: int, image_of_caption: Integers) -> None:
        """Refuse data that the protocol is not made for."""
        if self.images is not None and num_images != self.images:
            raise InputError(
                f"the protocol {self.name} is defined for {self}{self.hint}; there are "
                f"{num_images:,} images. Use `protocol=all`, or give that split."
            )
        if num_images < self.folds:
            raise InputError(f"{self.folds} folds of {num_images} images cannot be made.")
        if self.captions is not None:
            counts = np.bincount(image_of_caption, minlength=num_images)
            few = np.flatnonzero(counts < self.captions)
            if len(few):
                more = f" (and {len(few) - 1:,} more)" if len(few) > 1 else ""
                raise InputError(
                    f"the protocol {self.name} needs {self.captions} captions of every image; "
                    f"image {few[0]}{more} has {counts[few[0]]}. Use `protocol=all`."
                )

    def fold(self, num_images: int, image_of_caption: Integers) -> list[Fold]:
        """The folds of some data, which is checked first."""
        self.check(num_images, image_of_caption)
        kept = _first_captions(image_of_caption, self.captions)
        edges = np.linspace(0, num_images, self.folds + 1).astype(int)
        image, folds = image_of_caption[kept], []
        for start, stop in itertools.pairwise(edges):
            captions = kept[(image >= start) & (image < stop)]
            folds.append(Fold(np.arange(start, stop), captions, image_of_caption[captions] - start))
        return folds

    def used(self, folds: list[Fold], num_captions: int) -> str:
        """Which images and captions are ranked, of `num_captions`."""
        line = f"protocol {self.name}: "
        omitted = num_captions - sum(len(fold.captions) for fold in folds)
        if len(folds) == 1:
            line += "" if omitted else "all "
            line += f"{len(folds[0].images):,} images and {len(folds[0].captions):,} captions"
        else:
            line += f"mean over {len(folds)} folds, each ranked on its own: "
            line += "; ".join(map(str, folds))
        if omitted:
            line += f"; {omitted:,} captions beyond an image's first {self.captions} are not used"
        return line + "."


_TESTALL = " (precomputed files call that split 'testall')"
_COCO_SPLITS = ("testall", "test")  # where there are both, 'test' is a fifth of it
PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("all", "every image and caption given"),
        Protocol("flickr8k-1k", "test images of Flickr8k", 1000, 5),
        Protocol("flickr30k-1k", "test images of Flickr30k", 1000, 5),
        Protocol("coco-5k", "test images of COCO", 5000, 5, 1, _TESTALL, _COCO_SPLITS),
        Protocol("coco-1k", "test images of COCO", 5000, 5, 5, _TESTALL, _COCO_SPLITS),
    )
}
"""The protocols by name: which images and captions are ranked against which.

Examples:
    >>> print(simgrad.evaluation.PROTOCOLS["coco-1k"])
    5,000 test images of COCO, 5 captions each, mean over 5 folds of 1,000
"""


def find_protocol(protocol: str | Protocol) -> Protocol:
    """A protocol by its name."""
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        names = ", ".join(PROTOCOLS)
        raise InputError(f"there is no protocol '{protocol[:60]}'; there are: {names}.")
    return PROTOCOLS[protocol]


def _first_captions(image_of_caption: Integers, limit: int | None) -> Integers:
    """The rows of each image's first captions."""
    rows = np.arange(len(image_of_caption))
    if limit is None:
        return rows
    order = np.argsort(image_of_caption, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(image_of_caption))])[:-1]
    turn = np.empty_like(rows)
    turn[order] = rows - begin[image_of_caption[order]]
    return rows[turn < limit]
