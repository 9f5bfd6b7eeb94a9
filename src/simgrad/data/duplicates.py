"""Near-duplicates: pictures so alike that whoever trains on one must not be tested on the other.

Two pictures whose perceptual hashes (likeness.py) have a likeness of 0.9 or more are one unit. Of
the 8,000 photos of Flickr8k one pair has a likeness of 1.0, the next 0.66, and none lies between.
"""

from concurrent.futures import ThreadPoolExecutor
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
from simgrad.data.likeness import SIDE, perceptual_hash, thumbprint

if TYPE_CHECKING:
    from PIL.Image import Image

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
