"""What every data set becomes: splits of images and captions with an explicit pairing.

`opening.py` reads one from disk. Nothing here guesses that caption i belongs to image i // 5: each
caption says which image it belongs to.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.text import counted
from simgrad.data.fingerprint import Fingerprint, fingerprint

if TYPE_CHECKING:
    from PIL.Image import Image
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Lazy(Sequence[T], Generic[T]):
    """A sequence whose items are made when they are asked for."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length, self._make = length, make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._make(int(index) % self._length)


LONGEST_CAPTION = 1_000_000  # characters: a book, or a quote that nobody closed
Rows = npt.NDArray[np.int64]
# (image rows, caption rows) -> of each pair, whether the caption is true of the image
Describes = Callable[[Rows, Rows], npt.NDArray[np.bool_]]


class Pictures(Protocol):
    """The pictures of a split, decoded one at a time.

    Examples:
        >>> train = simgrad.data.open_dataset("scenes(train=8, val=1, test=1)").split("train")
        >>> pictures = train.pictures
        >>> len(pictures), pictures.picture(0).size
        (8, (64, 64))
    """

    def __len__(self) -> int: ...

    def picture(self, row: int) -> "Image":
        """The picture of an image row, in RGB; an error names its file."""
        ...

    def path(self, row: int) -> Path | None:
        """Its file, where it has one of its own."""
        ...

    def content(self, verify: bool = False) -> str:
        """A hash that changes when a picture does; `verify`: of every byte."""
        ...

    @property
    def root(self) -> Path | None:
        """The folder that all of these files should lie in."""
        ...


class Features(Protocol):
    """Precomputed features of a split's images.

    Examples:
        >>> dataset = simgrad.data.open_dataset("scenes(train=8, val=1, test=1, features=global)")
        >>> features = dataset.split("train").features
        >>> features.shape, features.rows([0, 3]).shape
        ((256,), (2, 256))
    """

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image's features: (dimension,) or (regions, dimension)."""
        ...

    @property
    def header(self) -> str:
        """One line on where they come from and what shape they have."""
        ...

    def content(self, verify: bool = False) -> str:
        """A hash that changes when the features do; `verify`: of every byte."""
        ...

    def rows(self, indices: Rows) -> npt.NDArray[Any]:
        """The features of these image rows, float32, or pictures as bytes; only they are read."""
        ...


@dataclass(frozen=True, repr=False)
class Split:
    """Images and captions of one split.

    Examples:
        >>> train = simgrad.data.open_dataset("scenes(train=8, val=1, test=1)").split("train")
        >>> train.num_images, train.image_of_caption[:6].tolist()
        (8, [0, 0, 0, 0, 0, 1])
        >>> train.captions_of(1).tolist()
        [5, 6, 7, 8, 9]
    """

    dataset: str
    name: str
    captions: Sequence[str]  # (captions,)
    image_of_caption: Rows  # (captions,) row of the image in this split
    image_names: Sequence[str]  # (images,) what people call them: file name, id
    pictures: Pictures | None = None
    features: Features | None = None
    caption_ids: Sequence[str] | None = None  # as human judgments and candidate lists call them
    caption_places: Callable[[int], str] | None = None  # file and line that a caption came from
    truth: Describes | None = None  # exact semantics, where they are known
    caption_vectors: Features | None = None  # what a network made of the captions, where it is kept

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
        vectors = self.caption_vectors
        if vectors is not None and len(vectors) != len(self.captions):
            raise InputError(
                f"{where}: {len(vectors):,} caption vectors for {len(self.captions):,} captions."
            )
        if self.caption_ids is not None and len(self.caption_ids) != len(self.captions):
            raise InputError(
                f"{where}: {len(self.caption_ids):,} caption ids "
                f"for {len(self.captions):,} captions."
            )
        self._refuse_long(where)

    def _refuse_long(self, where: str) -> None:
        """Before its words are counted: that takes twenty times its memory."""
        if not isinstance(self.captions, list):  # made when they are asked for
            return
        if max(map(len, self.captions), default=0) > LONGEST_CAPTION:
            row = next(i for i, c in enumerate(self.captions) if len(c) > LONGEST_CAPTION)
            place = self.caption_places(row) if self.caption_places else f"{where}, caption {row}"
            raise InputError(
                f"{place}: a caption of {len(self.captions[row]):,} characters; at most "
                f"{LONGEST_CAPTION:,} are read. Is a line break or a closing quote missing?"
            )

    def __repr__(self) -> str:
        return f"<Split {self.name} of {self.dataset}: {self.summary()}>"

    def summary(self) -> str:
        """How much of what it holds, in a few words."""
        words = [counted(self.num_images, "image"), counted(self.num_captions, "caption")]
        if self.pictures is not None:
            words.append("pictures")
        if self.features is not None:
            words.append(f"features {' x '.join(map(str, self.features.shape))}")
        if self.caption_vectors is not None:
            words.append(f"caption vectors {' x '.join(map(str, self.caption_vectors.shape))}")
        return ", ".join(words)

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

    def captions_of_each(self, images: Rows) -> tuple[Rows, Rows]:
        """The caption rows of many images, and for each of them the place of its image in the list.

        Examples:
            >>> import numpy as np
            >>> split = simgrad.data.open_dataset("scenes(train=4, val=2, test=2)").split("train")
            >>> place, captions = split.captions_of_each(np.array([2, 0]))
            >>> place.tolist(), captions.tolist()
            ([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [10, 11, 12, 13, 14, 0, 1, 2, 3, 4])
        """
        order, start = self._captions_by_image
        counts = self.captions_per_image[images]
        place = np.repeat(np.arange(len(images)), counts)
        behind = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, order[start[images][place] + behind]


@dataclass(frozen=True)
class Origin:
    """How a data set was opened, to open it again from anywhere: paths are absolute."""

    data: str
    features: str | None = None
    skip: str | None = None
    layout: str | None = None
    published: bool = False
    train_images: int | None = None  # of the train split, where not all
    resplit: str | None = None  # which splits, where not its own


@dataclass(frozen=True, repr=False)
class Dataset:
    """A named data set: its splits, and what was decided when it was read.

    Examples:
        >>> simgrad.data.open_dataset("scenes(train=8, val=2, test=2, features=global)")
        <Dataset scenes(train=8, val=2, test=2, features=global), layout scenes
          train: 8 images, 40 captions, pictures, features 256
          val: 2 images, 10 captions, pictures, features 256
          test: 2 images, 10 captions, pictures, features 256>
    """

    name: str
    layout: str
    splits: dict[str, Split]
    notes: tuple[str, ...] = ()  # what a reader should know: merged splits, dropped captions
    identity: str | None = None  # for generated data: text that determines every byte of it
    origin: Origin | None = None  # None: put together in Python
    # Images that look alike, as (split, name); None: nobody has looked.
    alike: tuple[tuple[tuple[str, str], ...], ...] | None = None

    def __repr__(self) -> str:
        splits = "".join(f"\n  {s.name}: {s.summary()}" for s in self.splits.values())
        notes = "".join(f"\n  {note}" for note in self.notes)
        return f"<Dataset {self.name}, layout {self.layout}{splits}{notes}>"

    def split(self, name: str) -> Split:
        """One split; an error names those that exist."""
        if name not in self.splits:
            has = ", ".join(self.splits) or "none"
            raise InputError(f"{self.name} has no split '{name}' (it has: {has}).")
        return self.splits[name]

    def fingerprint(self, verify: bool = False) -> Fingerprint:
        """What it holds, to know it again: captions, pairing, names, features, pictures.

        The files are looked at when it is first asked for; `verify` reads all of them, now.
        """
        return fingerprint(self, verify=True) if verify else self._fingerprint

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        return fingerprint(self)


def with_splits(dataset: Dataset, splits: Iterable[Split]) -> Dataset:
    """The same data set with other splits."""
    return dataclasses.replace(dataset, splits={split.name: split for split in splits})
