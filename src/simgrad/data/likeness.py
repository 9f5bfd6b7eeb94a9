"""Pictures that look alike, captions that say alike, and near-duplicates: from the data alone.

Two pictures whose perceptual hashes have a likeness of 0.9 or more are one unit: whoever trains on
one must not be tested on the other. Of the 8,000 photos of Flickr8k one pair has a likeness of 1.0,
the next 0.66, and none lies between.

A picture from elsewhere is known again by a thumbnail, which survives another file format or size.
It counts as one of the data set's own when one thumbnail is nearly the same and the next best is
clearly further away. Models on ready-made features can read only those pictures.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simgrad.core.console import track
from simgrad.core.derived import cache_folder, computed_once
from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.core.threads import cores
from simgrad.data.base import Pictures, Rows, Split
from simgrad.data.cutting import open_picture
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


ALIKE = 0.9
_FLAT = 0.02  # of the cells brighter than a neighbour: one colour, which is like any other
_BLOCK = 1024  # pictures that are compared with all others at a time
Signs = npt.NDArray[np.int8]  # (images, 264) -1 or 1; 0: cannot be read, or one colour


def units_of(split: Split) -> Rows:
    """(images,) a number for each image, the same for images that are near-duplicates.

    Without pictures each image is a unit of its own. A damaged picture is like no
    other, and so is one of a single colour.
    """
    if split.pictures is None or not split.num_images:
        return np.arange(split.num_images)
    return connected(signs_of(split))


def connected(signs: Signs) -> Rows:
    """(images,) units: images that are alike, or alike through others."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    values = signs.astype(np.float32)
    count, least = values.shape[0], ALIKE * values.shape[1]
    first: list[npt.NDArray[Any]] = []
    second: list[npt.NDArray[Any]] = []
    for start in range(0, count, _BLOCK):
        # Likeness is the share of equal bits less that of others: a product of signs.
        rows, columns = np.nonzero(values[start : start + _BLOCK] @ values.T >= least)
        first.append(rows + start)
        second.append(columns)
    pairs = (np.concatenate(first), np.concatenate(second))
    graph = sparse.coo_matrix((np.ones(len(pairs[0]), dtype=np.int8), pairs), shape=(count, count))
    units: Rows = connected_components(graph, directed=False)[1].astype(np.int64)
    return units


def signs_of(split: Split) -> Signs:
    """Computed once for the same pictures, and kept in the cache folder."""
    assert split.pictures is not None
    made_from = {
        "pictures": split.pictures.content(),
        "names": sha256(*(f"\0{name}" for name in split.image_names)),
    }
    path = cache_folder() / "likeness" / f"{sha256(*made_from.values())[:32]}.npy"
    return computed_once(path, made_from, lambda: _signs(split))


def _signs(split: Split) -> Signs:
    pictures = split.pictures
    assert pictures is not None

    def one(row: int) -> Signs | None:
        try:
            bright = perceptual_hash(thumbprint(_small(pictures, row)))
        except InputError:
            return None
        if bright.mean() < _FLAT:
            return None
        return np.where(bright, 1, -1).astype(np.int8)

    with ThreadPoolExecutor(cores()) as pool:
        rows = range(split.num_images)
        found = list(track(pool.map(one, rows), "pictures that look alike", len(rows)))
    length = next((len(signs) for signs in found if signs is not None), 1)
    return np.stack([np.zeros(length, dtype=np.int8) if one is None else one for one in found])


def _small(pictures: Pictures, row: int) -> "Image":
    """A picture that is large enough for a thumbprint: of a large photo not all is decoded."""
    path = pictures.path(row)
    if path is None:
        return pictures.picture(row)
    return open_picture(path, str(path), least=8 * SIDE)


_NEAR = 6.0  # mean difference per channel, of 255, that another file format makes at most
_UNREADABLE = 10_000  # far from any picture
_MOST = 50_000  # pictures; beyond that the thumbnails take too long to make


def find_picture(picture: "Image", split: Split, place: Path, fingerprint: str) -> int | None:
    """The row of the split's picture that this is, or None."""
    if split.num_images == 0 or split.num_images > _MOST:
        return None
    known = _thumbprints(split, place, fingerprint)
    distance = np.abs(known - thumbprint(picture)).mean(axis=1, dtype=np.float32)
    row = int(distance.argmin())
    if distance[row] > _NEAR:
        return None
    rivals = np.delete(distance, row)
    return row if not len(rivals) or rivals.min() >= 2 * distance[row] else None


def _thumbprints(split: Split, place: Path, fingerprint: str) -> Array:
    path = place / f"thumbprints-{split.name}-{fingerprint[:16]}.npy"
    made_from = {"data": fingerprint, "split": split.name}
    return computed_once(path, made_from, lambda: _all_thumbprints(split))


def _all_thumbprints(split: Split) -> Array:
    assert split.pictures is not None
    prints = np.full((split.num_images, 3 * SIDE * SIDE), _UNREADABLE, dtype=np.int16)
    for row in range(split.num_images):
        try:
            prints[row] = thumbprint(split.pictures.picture(row))
        except InputError:
            continue
    return prints
