"""Is this picture one of the data set's own? Models on ready-made features can read only those.

Pictures are compared as 12 x 12 thumbnails, which survive another file format or size. A picture
counts as known when one thumbnail is nearly the same and the next best is clearly further away.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simgrad.core.derived import computed_once
from simgrad.core.errors import InputError
from simgrad.data.base import Split
from simgrad.data.likeness import SIDE, thumbprint

if TYPE_CHECKING:
    from PIL.Image import Image

_NEAR = 6.0  # mean difference per channel, of 255, that another file format makes at most
_DAMAGED = 10_000  # far from any picture
_MOST = 50_000  # pictures; beyond that the thumbnails take too long to make

Array = npt.NDArray[Any]


def find(picture: "Image", split: Split, place: Path, fingerprint: str) -> int | None:
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
    return computed_once(path, made_from, lambda: _compute(split))


def _compute(split: Split) -> Array:
    assert split.pictures is not None
    prints = np.full((split.num_images, 3 * SIDE * SIDE), _DAMAGED, dtype=np.int16)
    for row in range(split.num_images):
        try:
            prints[row] = thumbprint(split.pictures.picture(row))
        except InputError:
            continue
    return prints
