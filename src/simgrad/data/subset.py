"""Some images and captions of a split, the pairing kept right."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.base import Describes, Features, Pictures, Rows, Split

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class SomePictures:
    """The pictures of some rows."""

    pictures: Pictures
    kept: Rows

    def __len__(self) -> int:
        return len(self.kept)

    def picture(self, row: int) -> "Image":
        return self.pictures.picture(int(self.kept[row]))

    def path(self, row: int) -> Path | None:
        return self.pictures.path(int(self.kept[row]))

    def content(self, verify: bool = False) -> str:
        return sha256(self.pictures.content(verify), self.kept.tobytes())

    @property
    def root(self) -> Path | None:
        return self.pictures.root


@dataclass(frozen=True)
class SomeFeatures:
    """The features of some rows."""

    features: Features
    kept: Rows

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features.shape

    @property
    def header(self) -> str:
        return self.features.header

    def content(self, verify: bool = False) -> str:
        return sha256(self.features.content(verify), self.kept.tobytes())

    def rows(self, indices: Rows) -> npt.NDArray[np.float32]:
        return self.features.rows(self.kept[indices])


def take(split: Split, images: npt.NDArray[np.bool_], captions: npt.NDArray[np.bool_]) -> Split:
    """The split with these images and those of these captions whose image is kept."""
    captions = captions & images[split.image_of_caption]
    if images.all() and captions.all():
        return split
    kept = np.flatnonzero(images)
    rows = np.flatnonzero(captions)
    renumbered = np.cumsum(images) - 1
    ids, places, vectors = split.caption_ids, split.caption_places, split.caption_vectors
    return replace(
        split,
        captions=[split.captions[i] for i in rows.tolist()],
        image_of_caption=renumbered[split.image_of_caption[rows]],
        image_names=[split.image_names[i] for i in kept.tolist()],
        pictures=None if split.pictures is None else SomePictures(split.pictures, kept),
        features=None if split.features is None else SomeFeatures(split.features, kept),
        caption_ids=None if ids is None else [ids[i] for i in rows.tolist()],
        caption_places=None if places is None else lambda row: places(int(rows[row])),
        truth=None if split.truth is None else _truth_of(split.truth, kept, rows),
        caption_vectors=None if vectors is None else SomeFeatures(vectors, rows),
    )


def drawn(split: Split, images: int) -> Split:
    """So many images of a split and their captions: the same each time, and among those of more."""
    if images > split.num_images:
        raise InputError(
            f"{split.dataset}, split '{split.name}': {images:,} of its {split.num_images:,} images "
            "are asked for."
        )
    kept = np.random.default_rng(0).permutation(split.num_images) < images
    return take(split, kept, np.ones(split.num_captions, dtype=bool))


def _truth_of(truth: Describes, kept: Rows, rows: Rows) -> Describes:
    return lambda images, captions: truth(kept[images], rows[captions])
