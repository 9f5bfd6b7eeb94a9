"""Which captions belong to which images, in the forms a user may give them.

`None` (the diagonal of a square batch), a boolean images x captions mask, or a 1-D integer tensor
with each caption's image (-1: nobody's, a negative for all). Inside, a positive pair is a (query,
candidate) index, so that a batch of 65,536 never holds 65,536² booleans. Pairs to `ignore` are
neither positives nor negatives: a mask too, or a list (k, 2) of image and caption. How much each
positive pair counts is read in `graded.py`.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from simgrad.core.devices import widened
from simgrad.core.errors import InputError
from simgrad.objectives.engine.tensors import add_at, rows_at
from simgrad.objectives.graded import read_weights


@dataclass(frozen=True)
class Side:
    """The positive pairs seen from one direction: rows are queries. Pairs are sorted by query."""

    queries: int
    candidates: int
    query: Tensor  # (pairs,)
    candidate: Tensor  # (pairs,)
    one_each: bool  # every query has exactly one positive: pair k belongs to query k
    present: Tensor | None = None  # (queries,) bool; None: all of them
    candidate_present: Tensor | None = None  # (candidates,) bool
    ignored: Tensor | None = None  # (k, 2) of query and candidate
    orphans: bool = False  # some queries have no positive
    shared: bool = False  # every candidate belongs to one query, and every query has some
    elsewhere: int = 0  # further candidates, negatives of all, on other processes
    weight: Tensor | None = None  # (pairs,) how much each of them counts; None: 1

    @cached_property
    def share(self) -> "float | Tensor":
        """Half a query's share of the mean over the queries that are there and have a positive."""
        if self.orphans:
            # Their number is counted where it can be read back, so it is a number of the host.
            return 0.5 / max(1, int(self._count(self.query).gt(0).sum()))
        if self.present is None:
            return 0.5 / self.queries
        return 0.5 / widened(self.present.sum())

    @cached_property
    def silent(self) -> Tensor | None:
        """(queries,) the rows that contribute nothing: absent, without a positive or a negative."""
        absent = self.padding
        whole = self.candidate_present is None and self.ignored is None
        if self.one_each and self.candidates + self.elsewhere > 1 and whole:
            return absent
        if self.shared and self.queries > 1 and self.present is None and self.ignored is None:
            return None  # what belongs to another query is a negative
        own = self._count(self.query)
        present = self.candidate_present
        taken = own if self.ignored is None else own + self._count(self.ignored[:, 0])
        lone = taken >= self.elsewhere + (self.candidates if present is None else present.sum())
        lone = lone | (own == 0)
        return lone if absent is None else lone | absent

    @cached_property
    def importance(self) -> Tensor | None:
        """(queries,) the mean weight of a query's pairs; None: 1."""
        if self.weight is None or self.one_each:
            return self.weight
        total = add_at(self.weight.new_zeros(self.queries), self.query, self.weight)
        return total / self._count(self.query).clamp(min=1)

    @cached_property
    def grade(self) -> Tensor | None:
        """(pairs,) weights relative to their mean over the pairs of a query; None: 1."""
        if self.weight is None or self.one_each:
            return None
        assert self.importance is not None
        mean = rows_at(self.importance, self.query)
        return torch.where(mean > 0, self.weight / mean, 1.0)

    @cached_property
    def absent(self) -> Tensor | None:
        """(queries,) the rows that only fill up the batch, or have no positive."""
        return self._count(self.query) == 0 if self.orphans else self.padding

    @cached_property
    def padding(self) -> Tensor | None:
        """(queries,) the rows that only fill up the batch."""
        return None if self.present is None else ~self.present

    def _count(self, queries: Tensor) -> Tensor:
        return add_at(queries.new_zeros(self.queries), queries, torch.ones_like(queries))

    def mask(self) -> Tensor:
        """(queries, candidates) bool: the positives."""
        flat = self.place.new_zeros(self.queries * self.candidates, dtype=torch.bool)
        # Not `flat[...] = True`: that copies from the host, which a CUDA graph cannot.
        return flat.scatter(0, self.place, True).view(self.queries, self.candidates)

    @cached_property
    def place(self) -> Tensor:
        """(pairs,) where they stand in a flat matrix."""
        return self.query * self.candidates + self.candidate

    def rows(self, start: int, stop: int) -> "Side":
        """The same of some of the queries, counted from 0."""
        if (start, stop) == (0, self.queries):
            return self
        pairs = self.pairs_of(start, stop)
        ignored = self.ignored
        if ignored is not None:
            here = (ignored[:, 0] >= start) & (ignored[:, 0] < stop)
            ignored = ignored[here] - ignored.new_tensor([start, 0])
        return replace(
            self,
            queries=stop - start,
            query=self.query[pairs] - start,
            candidate=self.candidate[pairs],
            present=None if self.present is None else self.present[start:stop],
            ignored=ignored,
            shared=False,
            weight=None if self.weight is None else self.weight[pairs],
        )

    def pairs_of(self, start: int, stop: int) -> slice:
        """Which pairs belong to the queries start:stop."""
        if (start, stop) == (0, self.queries):
            return slice(0, len(self.query))
        return slice(start, stop) if self.one_each else slice(self._first(start), self._first(stop))

    def _first(self, query: int) -> int:
        return self._starts[query]

    @cached_property
    def _starts(self) -> list[int]:
        """Where the pairs of each query begin, and where all end."""
        every = torch.arange(self.queries + 1, device=self.query.device)
        found: list[int] = torch.searchsorted(self.query.contiguous(), every).tolist()
        return found


@dataclass(frozen=True)
class Positives:
    """Which captions belong to which images in a batch, from both directions.

    `present` marks the images that are really there: a batch padded to a fixed number of rows
    (as a captured CUDA graph needs it) has rows that are neither queries nor candidates.

    Examples:
        >>> cpu, image_of_caption = torch.device("cpu"), torch.tensor([0, 0, 1])
        >>> positives = simgrad.objectives.Positives.read(image_of_caption, 2, 3, cpu)
        >>> positives.i2t.mask()
        tensor([[ True,  True, False],
                [False, False,  True]])
    """

    i2t: Side
    t2i: Side
    order: Tensor | None  # i2t pair k is t2i pair order[k]; None: pair k is image k and caption k

    @cached_property
    def count(self) -> int:
        """How many pairs there are."""
        return self.i2t.query.shape[0]

    def by_caption(self, of_pairs: Tensor) -> Tensor:
        """What is sorted by image, sorted by caption."""
        if self.order is None:
            return of_pairs
        order = self.order.view(-1, *(1 for _ in of_pairs.shape[1:])).expand_as(of_pairs)
        return torch.empty_like(of_pairs).scatter_(0, order, of_pairs)

    def by_image(self, of_pairs: Tensor) -> Tensor:
        """What is sorted by caption, sorted by image."""
        return of_pairs if self.order is None else rows_at(of_pairs, self.order)

    def ignoring(self, pairs: Tensor) -> "Positives":
        """The same without some pairs (k, 2) of image and caption among the negatives."""
        i2t, t2i = replace(self.i2t, ignored=pairs), replace(self.t2i, ignored=pairs.flip(1))
        return Positives(i2t, t2i, self.order)

    def weighted(self, by_image: Tensor) -> "Positives":
        """The same with a weight for each pair, sorted by image."""
        i2t = replace(self.i2t, weight=by_image)
        return Positives(i2t, replace(self.t2i, weight=self.by_caption(by_image)), self.order)

    @staticmethod
    def of_captions(
        image_of_caption: Tensor, images: int, present: Tensor | None = None
    ) -> "Positives":
        """Each caption's image, as one index per caption."""
        captions = len(image_of_caption)
        order = torch.argsort(image_of_caption, stable=True)
        every = torch.arange(captions, device=image_of_caption.device)
        image = rows_at(image_of_caption, order)
        i2t = Side(images, captions, image, order, False, present=present, shared=True)
        t2i = Side(captions, images, every, image_of_caption, True, candidate_present=present)
        return Positives(i2t, t2i, order)

    @staticmethod
    def of_some_captions(image_of_caption: Tensor, images: int) -> "Positives":
        """The same where some captions, marked -1, are nobody's."""
        captions = len(image_of_caption)
        caption = (image_of_caption >= 0).nonzero()[:, 0]  # (pairs,)
        image = image_of_caption[caption]
        order = torch.argsort(image, stable=True)
        i2t = Side(images, captions, image[order], caption[order], False)
        t2i = Side(captions, images, caption, image, False, orphans=len(caption) < captions)
        return Positives(i2t, t2i, order)

    @staticmethod
    def diagonal(size: int, device: torch.device) -> "Positives":
        """Pair k is image k and caption k."""
        every = torch.arange(size, device=device)
        side = Side(size, size, every, every, True)
        return Positives(side, side, None)

    @staticmethod
    def of_mask(mask: Tensor) -> "Positives":
        """Any pairing, several images of a caption included."""
        images, captions = mask.shape
        rows, columns = mask.nonzero(as_tuple=True)
        order = torch.argsort(columns, stable=True)
        alone = [bool((~mask.any(axis)).any()) for axis in (1, 0)]  # an image, a caption
        i2t = Side(images, captions, rows, columns, False, orphans=alone[0])
        t2i = Side(captions, images, columns[order], rows[order], False, orphans=alone[1])
        # order maps t2i pairs to i2t pairs; we keep the inverse, as for captions.
        return Positives(i2t, t2i, torch.argsort(order))

    @staticmethod
    def read(
        positives: "Tensor | Positives | None",
        images: int,
        captions: int,
        device: torch.device,
        check: bool = True,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> "Positives":
        """Any of the public forms; what does not fit is an error that says which row.

        Without `check` nothing is read back from a GPU, and nothing is refused.
        """
        found = _read(positives, images, captions, device, check)
        if weights is not None:
            found = found.weighted(read_weights(weights, found, device, check))
        if ignore is None:
            return found
        return found.ignoring(_read_ignored(ignore, found, images, captions, device, check))


def _read(
    positives: "Tensor | Positives | None",
    images: int,
    captions: int,
    device: torch.device,
    check: bool,
) -> Positives:
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
    positives = positives.long()
    if _check_index(positives, images, captions, check):
        return Positives.of_some_captions(positives, images)
    return Positives.of_captions(positives, images)


_diagonal = lru_cache(maxsize=8)(Positives.diagonal)  # the same from step to step


_LABELS = (
    " `positives` gives each caption's image; equal labels make pairs in one batch with "
    "`.within(embeddings, labels)`, in two with the mask `labels[:, None] == labels`."
)


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
                "give it one. A caption that is nobody's is -1 in a list of each caption's image."
            )


def _check_index(index: Tensor, images: int, captions: int, check: bool) -> bool:
    """Whether some captions are nobody's."""
    if index.shape != (captions,):
        raise InputError(
            f"positives has shape {tuple(index.shape)}; with {captions} captions it must be "
            f"({captions},): the image of each caption."
        )
    if not check:
        return False
    outside = (index < -1) | (index >= images)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise InputError(
            f"caption {row} belongs to image {int(index[row])}, but there are {images} images "
            f"(0 to {images - 1}; -1 for a caption that is nobody's).{_LABELS}"
        )
    orphans = index < 0
    counts = torch.bincount(index[~orphans], minlength=images)
    if (counts == 0).any():
        raise InputError(
            f"image {int((counts == 0).nonzero()[0])} has no caption among the positives: leave "
            f"it out of the batch, or give it one.{_LABELS}"
        )
    return bool(orphans.any())


def _read_ignored(
    ignore: Tensor,
    positives: Positives,
    images: int,
    captions: int,
    device: torch.device,
    check: bool,
) -> Tensor:
    """(k, 2) pairs of image and caption, each once."""
    if not isinstance(ignore, Tensor):
        raise InputError(
            f"ignore is a {type(ignore).__name__}; give a tensor: boolean ({images}, {captions}), "
            "or integer (k, 2) with image and caption of each pair."
        )
    ignore = ignore.to(device)
    if ignore.dtype == torch.bool:
        if ignore.shape != (images, captions):
            raise InputError(
                f"the mask of pairs to ignore has shape {tuple(ignore.shape)}, the batch "
                f"({images}, {captions})."
            )
        pairs = ignore.nonzero()
    elif ignore.dtype.is_floating_point or ignore.dim() != 2 or ignore.shape[1] != 2:
        raise InputError(
            f"ignore has shape {tuple(ignore.shape)} and dtype {ignore.dtype}; it must be a mask "
            f"({images}, {captions}) or whole numbers (k, 2): image and caption of each pair."
        )
    else:
        pairs = torch.unique(ignore.long(), dim=0)
    if not check:
        return pairs
    outside = (pairs < 0).any(1) | (pairs[:, 0] >= images) | (pairs[:, 1] >= captions)
    if outside.any():
        image, caption = pairs[outside][0].tolist()
        raise InputError(
            f"ignore names image {image} and caption {caption}; there are {images} and {captions}."
        )
    own = positives.i2t.query * captions + positives.i2t.candidate
    both = torch.isin(pairs[:, 0] * captions + pairs[:, 1], own)
    if both.any():
        image, caption = pairs[both][0].tolist()
        raise InputError(
            f"image {image} and caption {caption} are a positive pair, and to be ignored: choose."
        )
    return pairs


def pairs_within(labels: Tensor, embeddings: Tensor) -> tuple[Positives, Tensor]:
    """Positives of one batch among itself, by equal labels; and each row with itself, to ignore."""
    count = len(embeddings) if isinstance(embeddings, Tensor) and embeddings.dim() else 0
    if not isinstance(labels, Tensor) or labels.shape != (count,):
        got = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
        raise InputError(f"labels is {got}; it must be a tensor ({count},), one for each row.")
    if labels.is_floating_point():
        raise InputError("equal labels make a positive pair: whole numbers, not scores.")
    labels = labels.to(embeddings.device)
    every = torch.arange(count, device=labels.device)
    found = Positives.of_mask((labels[:, None] == labels[None]).fill_diagonal_(False))
    if not torch.compiler.is_compiling() and not found.count:  # as the last rows of an epoch may
        warnings.warn(
            f"labels: no two of the {count:,} rows have an equal one, so there is no positive pair "
            "and nothing to learn. If that is so in every batch, give each label to two rows or "
            "more of it.",
            stacklevel=3,
        )
    return found, torch.stack([every, every], 1)
