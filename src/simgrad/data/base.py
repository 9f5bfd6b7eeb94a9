"""What every data set becomes: splits of images and captions with an explicit pairing.

`opening.py` reads one from disk. Nothing here guesses that caption i belongs to image i // 5: each
caption says which image it belongs to.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

Rows = npt.NDArray[np.int64]
Truth = Callable[[Rows, Rows], npt.NDArray[np.bool_]]


class Pictures(Protocol):
    """The pictures of a split, decoded one at a time."""

    def __len__(self) -> int: ...

    def picture(self, row: int) -> "Image":
        """The picture of an image row, in RGB; an error names its file."""
        ...

    def path(self, row: int) -> Path | None:
        """Its file, where it has one of its own."""
        ...

    @property
    def root(self) -> Path | None:
        """The folder that all of these files should lie in."""
        ...


class Features(Protocol):
    """Precomputed features of a split's images."""

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image: (dimension,) or (regions, dimension)."""
        ...

    @property
    def header(self) -> str:
        """One line that changes when the features do; part of a data set's fingerprint."""
        ...

    def rows(self, indices: Rows) -> npt.NDArray[Any]:
        """The features of these image rows, float32, or pictures as bytes; only they are read."""
        ...


@dataclass(frozen=True)
class Split:
    """Images and captions of one split."""

    dataset: str
    name: str
    captions: Sequence[str]  # (captions,)
    image_of_caption: Rows  # (captions,) row of the image in this split
    image_names: Sequence[str]  # (images,) what people call them: file name, id
    pictures: Pictures | None = None
    features: Features | None = None
    caption_ids: Sequence[str] | None = None  # as human judgments and candidate lists call them
    caption_places: Callable[[int], str] | None = None  # file and line that a caption came from
    truth: Truth | None = None  # truth(image_rows, caption_rows): exact semantics, where known

    def __post_init__(self) -> None:
        rows = np.ascontiguousarray(self.image_of_caption, dtype=np.int64)
        object.__setattr__(self, "image_of_caption", rows)
        where = f"{self.dataset}, split '{self.name}'"
        if rows.shape != (len(self.captions),):
            raise InputError(
                f"{where}: {len(self.captions):,} captions, but the pairing has shape {rows.shape}."
            )
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self.image_names)):
            raise InputError(
                f"{where}: the pairing points outside its {len(self.image_names):,} images."
            )
        for what, holder in (("pictures", self.pictures), ("feature rows", self.features)):
            if holder is not None and len(holder) != len(self.image_names):
                raise InputError(
                    f"{where}: {len(holder):,} {what} for {len(self.image_names):,} images."
                )
        if self.caption_ids is not None and len(self.caption_ids) != len(self.captions):
            raise InputError(
                f"{where}: {len(self.caption_ids):,} caption ids "
                f"for {len(self.captions):,} captions."
            )

    @property
    def num_images(self) -> int:
        return len(self.image_names)

    @property
    def num_captions(self) -> int:
        return len(self.captions)

    @cached_property
    def captions_per_image(self) -> Rows:
        """(images,) how many captions each image has."""
        return np.bincount(self.image_of_caption, minlength=self.num_images).astype(np.int64)

    @cached_property
    def _captions_by_image(self) -> tuple[Rows, Rows]:
        order = np.argsort(self.image_of_caption, kind="stable").astype(np.int64)
        return order, np.concatenate([[0], np.cumsum(self.captions_per_image)])

    def captions_of(self, image: int) -> Rows:
        """The caption rows of one image, in their order."""
        order, start = self._captions_by_image
        if not 0 <= image < self.num_images:
            raise InputError(f"split '{self.name}' has no image row {image}.")
        return order[start[image] : start[image + 1]]


@dataclass(frozen=True)
class Dataset:
    """A named data set: its splits, and what was decided when it was read."""

    name: str
    layout: str
    splits: dict[str, Split]
    notes: tuple[str, ...] = ()  # what a reader should know: merged splits, dropped captions
    identity: str | None = None  # for generated data: text that determines every byte of it

    def split(self, name: str) -> Split:
        """One split; an error names those that exist."""
        if name not in self.splits:
            has = ", ".join(self.splits) or "none"
            raise InputError(f"{self.name} has no split '{name}' (it has: {has}).")
        return self.splits[name]

    def fingerprint(self) -> str:
        """A hash of names, captions, pairing and the header of the features."""
        digest = hashlib.sha256()
        for split in self.splits.values():
            digest.update(_text([split.name, split.features.header if split.features else ""]))
            if self.identity is not None:
                digest.update(_text([self.identity]))
                continue
            digest.update(_text(split.image_names))
            digest.update(_text(split.captions))
            digest.update(split.image_of_caption.tobytes())
        return digest.hexdigest()


def _text(parts: Iterable[str]) -> bytes:
    # JSON may carry half a surrogate pair, which plain UTF-8 refuses.
    return "\0".join(parts).encode("utf-8", "surrogatepass") + b"\1"


def with_splits(dataset: Dataset, splits: Iterable[Split]) -> Dataset:
    """The same data set with other splits."""
    return dataclasses.replace(dataset, splits={split.name: split for split in splits})
