"""Which captions belong to which images, in the three forms a user may give them.

`None` (the diagonal of a square batch), a boolean images x captions mask, or a 1-D integer tensor
with each caption's image. Inside, a positive pair is a (query, candidate) index; the mask of a
block of rows is made only when it is needed, so a batch of 65,536 never holds 65,536² booleans.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from simgrad.core.errors import InputError

_ALL = slice(None)


@dataclass(frozen=True)
class Side:
    """The positive pairs seen from one direction: rows are queries. Pairs are sorted by query."""

    queries: int
    candidates: int
    query_of_pair: Tensor  # (pairs,)
    candidate_of_pair: Tensor  # (pairs,)
    one_each: bool  # every query has exactly one positive: pair k belongs to query k
    diagonal: bool = False  # and that positive is candidate k
    dense: Tensor | None = None  # (queries, candidates) bool, where the user gave a mask
    query_present: Tensor | None = None  # (queries,) bool; None: all of them
    candidate_present: Tensor | None = None  # (candidates,) bool

    @cached_property
    def share(self) -> "float | Tensor":
        """Half a query's share of the mean over queries."""
        if self.query_present is None:
            return 0.5 / self.queries
        return 0.5 / self.query_present.sum().double()

    @cached_property
    def absent(self) -> Tensor | None:
        """(queries,) the rows that only fill up the batch."""
        return None if self.query_present is None else ~self.query_present

    @cached_property
    def silent(self) -> Tensor | None:
        """(queries,) the rows that contribute nothing: absent, or without a negative."""
        if self.one_each and self.candidates > 1 and self.candidate_present is None:
            return self.absent
        count = torch.zeros(self.queries, dtype=torch.long, device=self.query_of_pair.device)
        count.index_add_(0, self.query_of_pair, torch.ones_like(self.query_of_pair))
        present = self.candidate_present
        lone = count >= (self.candidates if present is None else present.sum())
        return lone if self.absent is None else lone | self.absent

    def mask(self, start: int, stop: int, pairs: slice) -> Tensor:
        """The positives of rows start:stop, whose pairs are `pairs`."""
        if self.dense is not None:
            return self.dense[start:stop]
        candidate = self.candidate_of_pair[pairs]
        place = (self.query_of_pair[pairs] - start) * self.candidates + candidate
        size = (stop - start) * self.candidates
        mask = torch.zeros(size, dtype=torch.bool, device=place.device)
        # Not `mask[...] = True`: that copies from the host, which a CUDA graph cannot.
        return mask.index_fill_(0, place, True).view(stop - start, self.candidates)

    def blocks(self, elements: int) -> list[tuple[int, int, slice]]:
        """Row ranges (start, stop, pairs), each with about `elements` pair x candidate entries."""
        pairs, count = max(1, elements // max(1, self.candidates)), len(self.query_of_pair)
        if max(self.queries, count) <= pairs:
            return [(0, self.queries, slice(0, count))]
        if self.one_each:
            starts = range(0, self.queries, pairs)
            return [
                (a, min(a + pairs, self.queries), slice(a, min(a + pairs, self.queries)))
                for a in starts
            ]
        edges = torch.arange(self.queries + 1, device=self.query_of_pair.device)
        first = torch.searchsorted(self.query_of_pair.contiguous(), edges).tolist()
        blocks, start = [], 0
        while start < self.queries:
            stop = start + 1
            while (
                stop < self.queries
                and first[stop + 1] - first[start] <= pairs
                and stop - start < pairs
            ):
                stop += 1
            blocks.append((start, stop, slice(first[start], first[stop])))
            start = stop
        return blocks


@dataclass(frozen=True)
class Positives:
    """Positive pairs of a batch, from both directions.

    `present` marks the images that are really there: a batch padded to a fixed number of rows
    (as a captured CUDA graph needs it) has rows that are neither queries nor candidates.
    """

    i2t: Side
    t2i: Side
    order: Tensor | None  # i2t pair k is t2i pair order[k]; None: pair k is image k and caption k

    def fill(self, matrix: Tensor, value: float, start: int = 0, pairs: slice = _ALL) -> Tensor:
        """In place: the entries of these pairs; the matrix begins with image `start`."""
        if self.order is None:
            matrix[:, start : start + len(matrix)].diagonal().fill_(value)
            return matrix
        image, caption = self.i2t.query_of_pair[pairs], self.i2t.candidate_of_pair[pairs]
        given = matrix.new_full((), value)  # a kernel, not a copy: a CUDA graph can hold it
        return matrix.index_put_((image - start if start else image, caption), given)

    @cached_property
    def count(self) -> int:
        """How many pairs there are."""
        return self.i2t.query_of_pair.shape[0]

    @cached_property
    def together(self) -> tuple[Tensor, Tensor]:
        """Query and candidate of the pairs of both directions: image queries, then captions."""
        one, other = self.i2t, self.t2i
        query = torch.cat([one.query_of_pair, other.query_of_pair + one.queries])
        return query, torch.cat([one.candidate_of_pair, other.candidate_of_pair])

    def by_caption(self, of_pairs: Tensor) -> Tensor:
        """What is sorted by image, sorted by caption."""
        if self.order is None:
            return of_pairs
        return torch.empty_like(of_pairs).index_copy_(0, self.order, of_pairs)

    @staticmethod
    def of_captions(
        image_of_caption: Tensor, images: int, present: Tensor | None = None
    ) -> "Positives":
        """Each caption's image, as one index per caption."""
        captions = len(image_of_caption)
        order = torch.argsort(image_of_caption, stable=True)
        every = torch.arange(captions, device=image_of_caption.device)
        i2t = Side(images, captions, image_of_caption[order], order, False, query_present=present)
        t2i = Side(captions, images, every, image_of_caption, True, candidate_present=present)
        return Positives(i2t, t2i, order)

    @staticmethod
    def diagonal(size: int, device: torch.device) -> "Positives":
        """Pair k is image k and caption k."""
        every = torch.arange(size, device=device)
        side = Side(size, size, every, every, True, diagonal=True)
        return Positives(side, side, None)

    @staticmethod
    def of_mask(mask: Tensor) -> "Positives":
        """Any pairing, several images of a caption included."""
        images, captions = mask.shape
        rows, columns = mask.nonzero(as_tuple=True)
        order = torch.argsort(columns, stable=True)
        transposed = mask.t().contiguous()
        i2t = Side(images, captions, rows, columns, False, dense=mask)
        t2i = Side(captions, images, columns[order], rows[order], False, dense=transposed)
        # order maps t2i pairs to i2t pairs; we keep the inverse, as for captions.
        return Positives(i2t, t2i, torch.argsort(order))

    @staticmethod
    def read(
        positives: "Tensor | Positives | None",
        images: int,
        captions: int,
        device: torch.device,
        check: bool = True,
    ) -> "Positives":
        """Any of the public forms; what does not fit is an error that says which row."""
        if isinstance(positives, Positives):
            pairs = (positives.i2t.queries, positives.i2t.candidates)
            if pairs != (images, captions):
                raise InputError(
                    f"positives are of {pairs[0]} images and {pairs[1]} captions, the batch has "
                    f"{images} and {captions}."
                )
            return positives
        if positives is None:
            if images != captions:
                raise InputError(
                    f"{images} images and {captions} captions: without `positives` the batch must "
                    "be square, caption k belonging to image k. Give each caption's image, or a "
                    "boolean images x captions mask."
                )
            # A CUDA graph must hold what it reads: it makes its own.
            return (_diagonal if check else Positives.diagonal)(images, device)
        if not isinstance(positives, Tensor):
            raise InputError(
                f"positives is a {type(positives).__name__}; give a tensor: boolean "
                f"({images}, {captions}), or integer ({captions},) with each caption's image."
            )
        positives = positives.to(device)
        if positives.dtype == torch.bool:
            _check_mask(positives, images, captions, check)
            return Positives.of_mask(positives)
        if positives.dtype.is_floating_point or positives.dtype.is_complex:
            raise InputError(
                f"positives has dtype {positives.dtype}; a mask must be torch.bool "
                "(`positives > 0`), an index of each caption's image torch.int64."
            )
        _check_index(positives, images, captions, check)
        return Positives.of_captions(positives.long(), images)


_diagonal = lru_cache(maxsize=8)(Positives.diagonal)  # the same from step to step


def _check_mask(mask: Tensor, images: int, captions: int, check: bool) -> None:
    if mask.shape != (images, captions):
        raise InputError(
            f"the mask of positives has shape {tuple(mask.shape)}, the similarities "
            f"({images}, {captions})."
        )
    if not check:
        return
    for kind, empty in (("image", ~mask.any(1)), ("caption", ~mask.any(0))):
        if empty.any():
            raise InputError(
                f"{kind} {int(empty.nonzero()[0])} has no positive: leave it out of the batch, or "
                "mark what belongs to it."
            )


def _check_index(index: Tensor, images: int, captions: int, check: bool) -> None:
    if index.shape != (captions,):
        raise InputError(
            f"positives has shape {tuple(index.shape)}; with {captions} captions it must be "
            f"({captions},): the image of each caption."
        )
    if not check:
        return
    outside = (index < 0) | (index >= images)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise InputError(
            f"caption {row} belongs to image {int(index[row])}, but there are {images} images "
            f"(0 to {images - 1})."
        )
    counts = torch.bincount(index.long(), minlength=images)
    if (counts == 0).any():
        raise InputError(
            f"image {int((counts == 0).nonzero()[0])} has no caption among the positives: leave "
            "it out of the batch, or give it one."
        )
