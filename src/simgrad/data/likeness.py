"""Pictures that look alike, and captions that say alike: from the data alone, without a model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split
from simgrad.data.words import tokenize

if TYPE_CHECKING:
    from PIL.Image import Image

Array = npt.NDArray[Any]
SIDE = 12  # of a thumbnail, which survives another file format or size
_PAIRS = 100_000  # that are compared at a time


def thumbprint(picture: "Image") -> Array:
    """A picture as a few hundred numbers."""
    from PIL.Image import Resampling

    small = picture.convert("RGB").resize((SIDE, SIDE), Resampling.BOX)
    return np.asarray(small, dtype=np.int16).ravel()


def perceptual_hash(print_: Array) -> npt.NDArray[np.bool_]:
    """(264,) of a thumbprint: is each cell brighter than its neighbour to the right, and below?

    Two files of one picture differ in a few of these; two pictures in about half.
    """
    grey = print_.reshape(SIDE, SIDE, 3).sum(2)
    across, down = grey[:, 1:] > grey[:, :-1], grey[1:] > grey[:-1]
    return np.concatenate([across.ravel(), down.ravel()])


def picture_likeness(split: Split, first: Rows, second: Rows) -> Array:
    """(pairs,) from 0, unrelated, to 1, the same picture; 0 where there are no pictures."""
    likeness = np.zeros(len(first), dtype=np.float32)
    if split.pictures is None or not len(first):
        return likeness
    wanted = np.unique(np.concatenate([first, second]))
    hashes = np.zeros((split.num_images, 2 * SIDE * (SIDE - 1)), dtype=np.bool_)
    readable = np.zeros(split.num_images, dtype=np.bool_)
    for row in wanted.tolist():
        try:
            hashes[row] = perceptual_hash(thumbprint(split.pictures.picture(row)))
            readable[row] = True
        except InputError:
            continue  # a damaged picture is like no other
    for start in range(0, len(first), _PAIRS):
        part = slice(start, start + _PAIRS)
        same = (hashes[first[part]] == hashes[second[part]]).mean(1)
        likeness[part] = np.clip(2 * same - 1, 0, 1) * (
            readable[first[part]] & readable[second[part]]
        )
    return likeness


class CaptionLikeness:
    """Captions as weighted bags of words: cosines of tf-idf."""

    def __init__(self, captions: Sequence[str]) -> None:
        from scipy import sparse

        known: dict[str, int] = {}
        rows, columns = [], []
        for row, caption in enumerate(captions):
            for word in tokenize(caption):
                rows.append(row)
                columns.append(known.setdefault(word, len(known)))
        shape = (len(captions), max(1, len(known)))
        counts = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
        counts.sum_duplicates()
        in_captions = np.asarray((counts > 0).sum(0)).ravel()
        weight = np.log((1 + len(captions)) / (1 + in_captions))
        scaled = counts.multiply(weight[None]).tocsr()
        length = np.sqrt(np.asarray(scaled.multiply(scaled).sum(1)).ravel())
        self.vectors = sparse.diags(1 / np.maximum(length, 1e-12)) @ scaled

    def of(self, first: Rows, second: Rows) -> Array:
        """(pairs,) cosines, 0 to 1."""
        found = np.zeros(len(first), dtype=np.float32)
        for start in range(0, len(first), _PAIRS):
            part = slice(start, start + _PAIRS)
            both = self.vectors[first[part]].multiply(self.vectors[second[part]])
            found[part] = np.asarray(both.sum(1)).ravel()
        return found

    def to_own(self, split: Split, images: Rows, captions: Rows) -> tuple[Array, Array]:
        """Each caption against the image's own captions: the nearest, and the mean."""
        counts = split.captions_per_image[images]
        pair, own = split.captions_of_each(images)
        cosines = self.of(captions[pair], own)
        nearest, total = np.zeros(len(images)), np.zeros(len(images))
        np.maximum.at(nearest, pair, cosines)
        np.add.at(total, pair, cosines)
        return nearest, total / np.maximum(counts, 1)
