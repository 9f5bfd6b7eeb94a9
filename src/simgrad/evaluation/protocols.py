"""Protocols by name: which images and captions are ranked against which.

Published numbers are comparable only under one protocol. Each of these says what it used.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.ranks import Integers


@dataclass(frozen=True)
class Protocol:
    """One way to evaluate."""

    name: str
    description: str
    images: int | None = None  # how many images it is defined for; None: any
    captions: int | None = None  # only the first so many captions of each image; None: all
    folds: int = 1  # consecutive folds, ranked each on its own and averaged


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("all", "every image and caption given"),
        Protocol("flickr8k-1k", "the 1,000 test images of Flickr8k", 1000, 5),
        Protocol("flickr30k-1k", "the 1,000 test images of Flickr30k", 1000, 5),
        Protocol("coco-5k", "the 5,000 test images of COCO together", 5000, 5),
        Protocol("coco-1k", "COCO's 5,000 test images in five consecutive folds", 5000, 5, 5),
    )
}


@dataclass(frozen=True)
class Fold:
    """The rows and columns of one fold."""

    images: Integers
    captions: Integers
    image_of_caption: Integers  # (captions,) counted within the fold


def find_protocol(protocol: str | Protocol) -> Protocol:
    """A protocol by its name."""
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        names = ", ".join(PROTOCOLS)
        raise InputError(f"there is no protocol '{protocol}'; there are: {names}.")
    return PROTOCOLS[protocol]


def folds_of(
    protocol: Protocol, num_images: int, image_of_caption: Integers
) -> tuple[list[Fold], str]:
    """The folds of a protocol, and in words what they hold."""
    if protocol.images is not None and num_images != protocol.images:
        hint = " (the published split is called 'testall')" if protocol.images == 5000 else ""
        raise InputError(
            f"the protocol {protocol.name} is defined for {protocol.images:,} images{hint}, "
            f"not {num_images:,}. Use --protocol all, or give the split it names."
        )
    if num_images < protocol.folds:
        raise InputError(f"{protocol.folds} folds of {num_images} images cannot be made.")
    kept = _first_captions(image_of_caption, protocol.captions)
    edges = np.linspace(0, num_images, protocol.folds + 1).astype(int)
    folds = []
    for start, stop in itertools.pairwise(edges):
        image = image_of_caption[kept]
        captions = kept[(image >= start) & (image < stop)]
        folds.append(Fold(np.arange(start, stop), captions, image_of_caption[captions] - start))
    return folds, _describe(protocol, folds, len(image_of_caption) - len(kept))


def _first_captions(image_of_caption: Integers, limit: int | None) -> Integers:
    rows = np.arange(len(image_of_caption))
    if limit is None:
        return rows
    order = np.argsort(image_of_caption, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(image_of_caption))])[:-1]
    turn = np.empty_like(rows)
    turn[order] = rows - begin[image_of_caption[order]]
    return rows[turn < limit]


def _describe(protocol: Protocol, folds: list[Fold], left_out: int) -> str:
    parts = []
    for fold in folds:
        images, captions = fold.images, fold.captions
        parts.append(
            f"images {images[0]:,}-{images[-1]:,} ({len(images):,}), "
            f"captions {captions.min():,}-{captions.max():,} ({len(captions):,})"
        )
    line = f"protocol {protocol.name}: "
    if len(folds) > 1:
        line += f"mean over {len(folds)} folds, each ranked on its own: "
    line += "; ".join(parts)
    if left_out:
        line += f"; {left_out:,} captions beyond an image's first {protocol.captions} left out"
    return line + "."
