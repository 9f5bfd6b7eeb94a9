"""Ranks of the true items: what a system did, query by query, and their Parquet file.

Ranks count from 1. A rival with an equal score stands before the true item.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path
from simgrad.evaluation.counting import Counts

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Positions:
    """Where each query's true items stand in its list of all candidates."""

    offsets: Integers  # (queries + 1,) query q has places offsets[q] to offsets[q + 1]
    places: Integers  # (true pairs,) rising within a query, from 1

    @property
    def sizes(self) -> Integers:
        """How many true items each query has."""
        return np.diff(self.offsets)

    @property
    def best(self) -> Integers:
        """(queries,) the best place."""
        return self.places[self.offsets[:-1]]

    @property
    def turns(self) -> Integers:
        """(true pairs,) 1 for a query's best item, 2 for its second, ..."""
        return np.arange(len(self.places)) - np.repeat(self.offsets[:-1], self.sizes) + 1

    @staticmethod
    def of(query: Integers, places: Integers) -> "Positions":
        """Group places by query; queries are numbered without gaps."""
        order = _order(query, places)
        sizes = np.bincount(query)
        return Positions(np.concatenate([[0], np.cumsum(sizes)]), places[order])


@dataclass(frozen=True)
class Ranks:
    """Per-query ranks of one system on one set of images and captions."""

    i2t: Integers  # (images,) rank of the best of the image's own captions
    t2i: Integers  # (captions,) rank of the caption's image
    caption_rank: Integers  # (captions,) place of each caption in the list of its own image
    image_of_caption: Integers  # (captions,)
    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    fold: Integers  # (images,) 0, or which fold an image was ranked in
    i2t_tied: Booleans  # (images,) a rival has the score of the best caption
    t2i_tied: Booleans  # (captions,) a rival has the score of the own image

    @property
    def i2t_positions(self) -> Positions:
        """Places of all captions of each image."""
        return Positions.of(self.image_of_caption, self.caption_rank)

    @property
    def t2i_positions(self) -> Positions:
        """Places of each caption's image."""
        return Positions(np.arange(len(self.t2i) + 1), self.t2i)

    @property
    def ties(self) -> int:
        """Queries, of both directions, whose rank a tie made worse."""
        return int(self.i2t_tied.sum() + self.t2i_tied.sum())

    def save(self, path: str | Path) -> None:
        """Write a Parquet file: one row for each caption."""
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        image = self.image_of_caption
        columns: dict[str, Any] = {
            "image": image.astype(np.int32),
            "image_id": [self.image_ids[i] for i in image],
            "caption_id": list(self.caption_ids),
            "fold": self.fold[image].astype(np.int16),
            "i2t": self.caption_rank.astype(np.int32),
            "t2i": self.t2i.astype(np.int32),
            "i2t_tied": self.i2t_tied[image],
            "t2i_tied": self.t2i_tied,
        }
        with atomic_path(path) as temporary:
            parquet.write_table(arrow.table(columns), temporary)

    @staticmethod
    def load(path: str | Path) -> "Ranks":
        """Read what `save` wrote."""
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        if not Path(path).is_file():
            raise InputError(f"{path}: there is no such file.")
        try:
            table = parquet.read_table(path)
            values = {name: table[name].to_numpy() for name in _NUMBERS}
            image_ids, caption_ids = (table[name].to_pylist() for name in _TEXTS)
        except (arrow.ArrowException, KeyError, OSError) as error:
            raise InputError(f"{path}: not a file of ranks that simgrad wrote ({error}).") from None
        image = values["image"].astype(np.int64)
        if not len(image) or len(np.unique(image)) != image.max() + 1 or image.min() < 0:
            raise InputError(f"{path}: the column 'image' does not number the images from 0.")
        first = np.unique(image, return_index=True)[1]
        caption_rank = values["i2t"].astype(np.int64)
        return Ranks(
            i2t=Positions.of(image, caption_rank).best,
            t2i=values["t2i"].astype(np.int64),
            caption_rank=caption_rank,
            image_of_caption=image,
            image_ids=tuple(image_ids[i] for i in first),
            caption_ids=tuple(caption_ids),
            fold=values["fold"].astype(np.int64)[first],
            i2t_tied=values["i2t_tied"].astype(bool)[first],
            t2i_tied=values["t2i_tied"].astype(bool),
        )


_NUMBERS = ("image", "fold", "i2t", "t2i", "i2t_tied", "t2i_tied")
_TEXTS = ("image_id", "caption_id")


def places(
    query: Integers,
    own: npt.NDArray[Any],
    rivals: Integers,
    gain: npt.NDArray[Any] | None = None,
) -> Integers:
    """Where each true item stands: behind its rivals and behind the query's better true items.

    Among true items of equal score the one of smaller gain stands first.
    """
    order = _order(query, -own) if gain is None else np.lexsort((gain, -own, query))
    begin = np.concatenate([[0], np.cumsum(np.bincount(query))])[:-1]
    result = np.empty(len(own), dtype=np.int64)
    result[order] = rivals[order] + np.arange(len(own)) - begin[query[order]] + 1
    return result


def _order(query: Integers, values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """By query, then by value; what is equal stays in its order.

    Complex numbers are compared by their real part first. One sort of keys that are in the order
    of their queries already, as they mostly are, takes a tenth of a `lexsort`'s time.
    """
    key = np.empty(len(query), dtype=np.complex128)
    key.real, key.imag = query, values
    return np.argsort(key, kind="stable")


def ranks_from_counts(
    counts: Counts,
    image_of_caption: Integers,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
) -> Ranks:
    """Turn counted rivals into ranks."""
    caption_rank = places(image_of_caption, counts.own.cpu().numpy(), counts.i2t.cpu().numpy())
    return Ranks(
        i2t=Positions.of(image_of_caption, caption_rank).best,
        t2i=counts.t2i.cpu().numpy() + 1,
        caption_rank=caption_rank,
        image_of_caption=image_of_caption,
        image_ids=tuple(image_ids),
        caption_ids=tuple(caption_ids),
        fold=np.zeros(len(counts.i2t_tied), dtype=np.int64),
        i2t_tied=counts.i2t_tied.cpu().numpy() > 0,
        t2i_tied=counts.t2i_tied.cpu().numpy() > 0,
    )


def join_folds(folds: Sequence[Ranks]) -> Ranks:
    """One table of ranks of which each fold was ranked on its own."""
    starts = np.concatenate([[0], np.cumsum([len(f.i2t) for f in folds])])[:-1]
    return Ranks(
        i2t=np.concatenate([f.i2t for f in folds]),
        t2i=np.concatenate([f.t2i for f in folds]),
        caption_rank=np.concatenate([f.caption_rank for f in folds]),
        image_of_caption=np.concatenate(
            [f.image_of_caption + s for f, s in zip(folds, starts, strict=True)]
        ),
        image_ids=tuple(i for f in folds for i in f.image_ids),
        caption_ids=tuple(c for f in folds for c in f.caption_ids),
        fold=np.concatenate([np.full(len(f.i2t), i) for i, f in enumerate(folds)]),
        i2t_tied=np.concatenate([f.i2t_tied for f in folds]),
        t2i_tied=np.concatenate([f.t2i_tied for f in folds]),
    )


def split_folds(ranks: Ranks) -> list[Ranks]:
    """The folds again, each with its images numbered from 0."""
    if not ranks.fold.any():
        return [ranks]
    parts = []
    for number in np.unique(ranks.fold):
        images = np.flatnonzero(ranks.fold == number)
        captions = np.flatnonzero(ranks.fold[ranks.image_of_caption] == number)
        parts.append(
            Ranks(
                i2t=ranks.i2t[images],
                t2i=ranks.t2i[captions],
                caption_rank=ranks.caption_rank[captions],
                image_of_caption=np.searchsorted(images, ranks.image_of_caption[captions]),
                image_ids=tuple(ranks.image_ids[i] for i in images),
                caption_ids=tuple(ranks.caption_ids[c] for c in captions),
                fold=np.zeros(len(images), dtype=np.int64),
                i2t_tied=ranks.i2t_tied[images],
                t2i_tied=ranks.t2i_tied[captions],
            )
        )
    return parts
