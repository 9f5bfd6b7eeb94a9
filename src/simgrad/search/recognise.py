"""Is this picture one of the data set's own? Models on ready-made features can read only those.

Pictures are compared as 12 x 12 thumbnails, which survive another file format or size. A picture
counts as known when one thumbnail is nearly the same and the next best is clearly further away.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simgrad.core.derived import read_array, read_kept, write_array, write_kept
from simgrad.core.errors import InputError
from simgrad.core.files import lock
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
    known = _ready(path, made_from)
    if known is not None:
        return known
    try:
        with lock(path.with_suffix(".lock"), what=str(path)):
            known = _ready(path, made_from)
            if known is None:
                known = _compute(split)
                write_kept(path.with_suffix(".json"), write_array(path, known), made_from)
            return known
    except OSError:  # no place to keep them
        return _compute(split)


def _ready(path: Path, made_from: dict[str, str]) -> Array | None:
    try:
        return read_array(path, read_kept(path.with_suffix(".json"), made_from))
    except (InputError, OSError, ValueError):
        return None  # none yet, or damaged


def _compute(split: Split) -> Array:
    assert split.pictures is not None
    prints = np.full((split.num_images, 3 * SIDE * SIDE), _DAMAGED, dtype=np.int16)
    for row in range(split.num_images):
        try:
            prints[row] = thumbprint(split.pictures.picture(row))
        except InputError:
            continue
    return prints
