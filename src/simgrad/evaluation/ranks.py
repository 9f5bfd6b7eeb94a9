"""Ranks of the true items: what a system did, query by query, and their Parquet file.

Ranks count from 1. A rival with an equal score stands before the true item.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.parquet import has_columns, read_columns, write_columns
from simgrad.evaluation.rivals import Rivals

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
_BEYOND = 1000  # no cut-off K of a metric lies further down


@dataclass(frozen=True)
class Positions:
    """Where each query's true items stand in its list of all candidates.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2]])
        >>> metrics = simgrad.evaluate_similarities(S, [0, 0, 1])  # captions 0 and 1 are of image 0
        >>> positions = metrics.ranks.positions["i2t"]
        >>> positions.places.tolist(), positions.best.tolist()
        ([1, 2, 3], [1, 3])
    """

    offsets: Integers  # (queries + 1,) query q has places offsets[q] to offsets[q + 1]
    places: Integers  # (true pairs,) rising within a query, from 1

    tied: Booleans | None = None  # (queries,) whether a tie made the best place worse, if known

    def __len__(self) -> int:
        """How many queries there are."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Integers:
        """(queries,) how many true items each query has."""
        return np.diff(self.offsets)

    @cached_property
    def best(self) -> Integers:
        """(queries,) the place of the best true item."""
        return self.places[self.offsets[:-1]]

    @cached_property
    def precision(self) -> npt.NDArray[np.float64]:
        """(true pairs,) the share of true items down to each of them."""
        turns = np.arange(len(self.places)) - np.repeat(self.offsets[:-1], self.sizes) + 1
        return turns / self.places

    @cached_property
    def within_size(self) -> Booleans:
        """(true pairs,) whether it is among the first R, R the number of true items."""
        return self.places <= np.repeat(self.sizes, self.sizes)

    def total(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """(queries,) the sum over each query's true items of a value for each pair."""
        return np.add.reduceat(values.astype(np.float64), self.offsets[:-1])

    @staticmethod
    def of(query: Integers, places: Integers, tied: Booleans | None = None) -> "Positions":
        """Group places by query; queries are numbered without gaps."""
        order = _order(query, places)
        sizes = np.bincount(query)
        return Positions(np.concatenate([[0], np.cumsum(sizes)]), places[order], tied)


@dataclass(frozen=True)
class Ranks:
    """Per-query ranks of one system on one set of images and captions.

    Examples:
        >>> ranks = simgrad.evaluate_similarities(torch.tensor([[0.9, 0.2], [0.8, 0.3]])).ranks
        >>> ranks.i2t.tolist(), ranks.t2i.tolist()
        ([1, 2], [1, 1])
    """

    i2t: Integers  # (images,) rank of the best of the image's own captions
    t2i: Integers  # (captions,) rank of the caption's image
    caption_rank: Integers  # (captions,) place of each caption in the list of its own image
    image_of_caption: Integers  # (captions,)
    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    fold: Integers  # (images,) 0, or which fold an image was ranked in
    i2t_tied: Booleans  # (images,) a rival has the score of the best caption
    t2i_tied: Booleans  # (captions,) a rival has the score of the own image

    @cached_property
    def positions(self) -> dict[str, Positions]:
        """By direction: places of all captions of each image, and of each caption's image."""
        return {
            "i2t": Positions.of(self.image_of_caption, self.caption_rank, self.i2t_tied),
            "t2i": Positions(np.arange(len(self.t2i) + 1), self.t2i, self.t2i_tied),
        }

    @property
    def ties(self) -> int:
        """Queries, of both directions, whose rank a tie made worse."""
        return int(self.i2t_tied.sum() + self.t2i_tied.sum())

    def worst(self) -> "Ranks":
        """The ranks of a system that finds nothing of the same queries: recalls are all 0."""
        image = self.image_of_caption
        captions, images = (np.bincount(of) for of in (self.fold[image], self.fold))  # of each fold
        last = np.maximum(captions, _BEYOND)[self.fold[image]]
        caption_rank = places(image, np.zeros(len(image)), last)
        return replace(
            self,
            i2t=Positions.of(image, caption_rank).best,
            t2i=np.maximum(images, _BEYOND)[self.fold[image]] + 1,
            caption_rank=caption_rank,
            i2t_tied=np.zeros_like(self.i2t_tied),
            t2i_tied=np.zeros_like(self.t2i_tied),
        )

    def save(self, path: str | Path) -> None:
        """Write a Parquet file: one row for each caption."""
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
        write_columns(path, columns)

    @staticmethod
    def load(path: str | Path) -> "Ranks":
        """Read what `save` wrote; a file that was damaged is refused."""
        columns = read_columns(path, _COLUMNS, "a file of ranks that simgrad wrote")
        try:
            image, fold, caption_rank, t2i = (
                columns[name].astype(np.int64) for name in ("image", "fold", "i2t", "t2i")
            )
            tied = {name: columns[name].astype(bool) for name in ("i2t_tied", "t2i_tied")}
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: not a file of ranks that simgrad wrote ({error}).") from None
        if not len(image) or image.min() < 0 or len(np.unique(image)) != image.max() + 1:
            raise InputError(f"{path}: damaged: the column 'image' does not number them from 0.")
        first = np.unique(image, return_index=True)[1]
        ranks = Ranks(
            i2t=Positions.of(image, caption_rank).best,
            t2i=t2i,
            caption_rank=caption_rank,
            image_of_caption=image,
            image_ids=tuple(map(str, columns["image_id"][first].tolist())),
            caption_ids=tuple(map(str, columns["caption_id"].tolist())),
            fold=fold[first],
            i2t_tied=tied["i2t_tied"][first],
            t2i_tied=tied["t2i_tied"],
        )
        for name in ("image_id", "fold", "i2t_tied"):  # said once for each caption of an image
            values = columns[name]
            if not np.array_equal(values[first][image], values):
                raise InputError(f"{path}: damaged: captions of one image differ in '{name}'.")
        ranks.check(str(path))
        return ranks

    @staticmethod
    def recognises(path: Path) -> bool:
        """Whether a file has the columns of ranks."""
        return has_columns(path, _COLUMNS)

    def check(self, where: str) -> None:
        """Refuse ranks that no ranking can have; `where` names their file."""
        if self.fold.min() < 0 or self.fold.max() >= len(self.fold):
            raise InputError(f"{where}: damaged: 'fold' is not a number of folds.")
        images = np.bincount(self.fold)[self.fold[self.image_of_caption]]
        captions = np.bincount(self.fold[self.image_of_caption])[self.fold[self.image_of_caption]]
        for name, ranks, most in (("t2i", self.t2i, images), ("i2t", self.caption_rank, captions)):
            wrong = np.flatnonzero((ranks < 1) | (ranks > most))
            if len(wrong):
                row = int(wrong[0])
                raise InputError(
                    f"{where}, row {row}: damaged: rank {ranks[row]} in '{name}' of a list of "
                    f"{most[row]:,}."
                )
        places = np.stack([self.image_of_caption, self.caption_rank])
        if np.unique(places, axis=1).shape[1] < len(self.t2i):
            raise InputError(f"{where}: damaged: two captions of one image have the same rank.")


_COLUMNS = ("image", "image_id", "caption_id", "fold", "i2t", "t2i", "i2t_tied", "t2i_tied")


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

    Complex numbers are compared by their real part first. Keys are mostly in the order of their
    queries already; then this sort takes a tenth of the time of `lexsort`.
    """
    key = np.empty(len(query), dtype=np.complex128)
    key.real, key.imag = query, values
    return np.argsort(key, kind="stable")


def ranks_from_rivals(
    counts: Rivals,
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
