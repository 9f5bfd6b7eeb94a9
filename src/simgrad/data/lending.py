"""Pictures for data that hold features alone: another data set has them, with the same captions.

Features of regions are published without pictures and under ids of their own, so an image is known
again by what is said of it: letters and digits of its captions, in any case.
"""

import re
from collections import Counter
from typing import TYPE_CHECKING

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Split

if TYPE_CHECKING:
    from PIL.Image import Image

_Place = tuple[str, int]  # split, row
_NOT_A_LETTER = re.compile(r"[\W_]+")


class PictureLender:
    """The pictures of a data set, found by captions.

    A caption that stands on two images speaks for neither; of several images that an image's
    captions name, the one that most of them name is taken.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._pictures = {
            name: split.pictures
            for name, split in dataset.splits.items()
            if split.pictures is not None
        }
        if not self._pictures:
            raise InputError(f"{dataset.name}: it has no pictures to lend.")
        self._places: dict[str, _Place | None] = {}
        for name in self._pictures:
            split = dataset.splits[name]
            for caption, image in zip(split.captions, split.image_of_caption.tolist(), strict=True):
                key, place = _key(caption), (name, image)
                self._places[key] = place if self._places.get(key, place) == place else None

    def picture(self, split: Split, row: int) -> "Image":
        """The picture of an image of another data set; an error where nobody has its captions."""
        keys = (_key(split.captions[int(caption)]) for caption in split.captions_of(row))
        votes = Counter(place for key in keys if (place := self._places.get(key)) is not None)
        if not votes:
            raise InputError(f"image {split.image_names[row]}: no picture has its captions.")
        name, found = votes.most_common(1)[0][0]
        return self._pictures[name].picture(found)


def _key(caption: str) -> str:
    return _NOT_A_LETTER.sub("", caption.lower())
