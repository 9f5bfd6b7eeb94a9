"""Rows of a split to tensors.

A `Source` reads with threads that run ahead, or from tensors that live on the device (`resident`),
where a batch is a few gathers and the host does nothing else. Which rows: see `Sampler`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split
from simgrad.data.log import HOW_TO_SKIP
from simgrad.data.sampling import (
    Drawn,
    IndexBatch,
    OfflineIndex,
    Sampler,
    in_order,
    index_batch,
)
from simgrad.data.vocabulary import Tokenizer

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Batch", "IndexBatch", "Sampler", "Source", "Tokens", "Transform", "in_order"]
__all__ += ["index_batch"]

# A picture and the batch's random numbers (None: no augmentation) to a tensor.
Transform = Callable[["Image", torch.Generator | None], Tensor]


@dataclass(frozen=True)
class Batch:
    """One batch as tensors.

    Examples:
        >>> dataset = simgrad.data.open_dataset("scenes(train=8, val=1, test=1, features=global)")
        >>> train = dataset.split("train")
        >>> source = simgrad.data.Source(train, simgrad.data.Vocabulary.build(train.captions))
        >>> batch = next(source.batches(simgrad.data.Sampler(batch=4).epoch(train, 0)))
        >>> len(batch.tokens), len(batch.lengths), len(batch.image_of_caption)
        (4, 4, 4)
    """

    images: Tensor  # (n, ...) pixels or features
    tokens: Tensor  # (m, length) padded with 0; or (m, d), captions that were encoded before
    lengths: Tensor  # (m,)
    image_of_caption: Tensor  # (m,) position in `images`
    index: IndexBatch
    present: Tensor | None = None  # (n,) which images are there, where the batch was padded
    drawn: Drawn | None = None  # what stands behind the batch proper, drawn from outside it

    def to(self, device: str | torch.device) -> "Batch":
        """The same batch on another device."""
        return self._changed(lambda part: part.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """In page-locked memory, so that the copy to a GPU overlaps with its work."""
        return self._changed(Tensor.pin_memory) if torch.cuda.is_available() else self

    def proper(self) -> "Batch":
        """Without what was drawn from outside."""
        if self.drawn is None:
            return self
        n, m = self.drawn.own_images, self.drawn.own_captions
        return Batch(
            self.images[:n],
            self.tokens[:m],
            self.lengths[:m],
            self.image_of_caption[:m],
            self.index,
            self.present,
        )

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        present, drawn = self.present, self.drawn
        return Batch(
            change(self.images),
            change(self.tokens),
            change(self.lengths),
            change(self.image_of_caption),
            self.index,
            None if present is None else change(present),
            None if drawn is None else drawn._replace(places=change(drawn.places)),
        )


class Source:
    """Rows of a split to tensors.

    `transform` turns pictures into tensors; without it the split's features are used.
    `resident` keeps all features and captions on `device`.
    `length` pads every batch to this many tokens, for code that needs fixed shapes.
    `vectors` (captions, d) take the place of tokens, where a text network never changes.
    `tokens`: what the tokenizer makes of the split's captions, where somebody has them already.

    Examples:
        >>> dataset = simgrad.data.open_dataset("scenes(train=8, val=1, test=1, features=global)")
        >>> train = dataset.split("train")
        >>> source = simgrad.data.Source(train, simgrad.data.Vocabulary.build(train.captions))
        >>> index = simgrad.data.Sampler(batch=4).epoch(train, 0)[0]
        >>> source.fetch(index).images.shape
        torch.Size([4, 256])
    """

    def __init__(
        self,
        split: Split,
        tokenizer: Tokenizer,
        transform: Transform | None = None,
        device: str | torch.device = "cpu",
        resident: bool = False,
        workers: int = 0,
        length: int | None = None,
        vectors: Tensor | None = None,
        tokens: "Tokens | None" = None,
    ) -> None:
        if transform is None and split.features is None:
            raise InputError(
                f"{split.dataset}, split '{split.name}' has no features: give a transform for its "
                "pictures, or compute features with `simgrad features`."
            )
        if transform is not None and split.pictures is None:
            raise InputError(f"{split.dataset}, split '{split.name}' has no pictures.")
        if resident and transform is not None:
            raise InputError("only features can be resident; pictures are decoded per batch.")
        self.split, self.transform, self.workers = split, transform, workers
        self.device = torch.device(device)
        self.length = length
        self._tokens: Tokens | _Vectors = (
            (tokens or Tokens.of(split, tokenizer)) if vectors is None else _Vectors(vectors)
        )
        self._features: Tensor | None = None
        if resident and split.features is not None:
            self._features = resident_features(split, self.device)
        if resident:
            self._tokens = self._tokens.to(self.device)

    @property
    def resident(self) -> bool:
        return self._features is not None

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of one image as the model gets it."""
        if self.transform is None and self.split.features is not None:
            return self.split.features.shape
        return tuple(self._pixels(np.zeros(1, dtype=np.int64), None).shape[1:])

    def fetch(self, index: IndexBatch, generator: torch.Generator | None = None) -> Batch:
        """The tensors of one batch, on the device."""
        images, captions, position = (
            torch.from_numpy(rows).to(self.device if self.resident else "cpu", non_blocking=True)
            for rows in (index.images, index.captions, index.image_of_caption)
        )
        return self._gather(index, images, captions, position, generator)

    def longest(self, captions: Rows) -> int:
        """Tokens of the longest of these captions; known without asking the device."""
        return int(self.lengths(captions).max(initial=1))

    def lengths(self, captions: Rows) -> Rows:
        """Tokens of each of these captions; known without asking the device."""
        return self._tokens.sizes(captions)

    def gather(
        self, images: Tensor, captions: Tensor, length: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Resident features, tokens and lengths of rows on the device: gathers alone, so that the
        work can be captured and replayed."""
        assert self._features is not None
        return self._features[images], *self._tokens.gather(captions, length)

    def _gather(
        self,
        index: IndexBatch,
        images: Tensor,
        captions: Tensor,
        position: Tensor,
        generator: torch.Generator | None,
    ) -> Batch:
        # The length is known on the host, so no device synchronisation is needed.
        length = self.length or self.longest(index.captions)
        tokens, lengths = self._tokens.gather(captions, length)
        drawn = None
        if isinstance(index, OfflineIndex):
            drawn = Drawn.of(index, self.device if self.resident else torch.device("cpu"))
        if self._features is not None:
            return Batch(self._features[images], tokens, lengths, position, index, drawn=drawn)
        if self.transform is not None:
            values = self._pixels(index.images, generator)
        else:
            assert self.split.features is not None
            values = torch.from_numpy(self.split.features.rows(index.images))
        batch = Batch(values, tokens, lengths, position, index, drawn=drawn)
        return batch if self.device.type == "cpu" else batch.pinned().to(self.device)

    def _pixels(self, rows: Rows, generator: torch.Generator | None) -> Tensor:
        assert self.transform is not None
        assert self.split.pictures is not None
        pictures = self.split.pictures
        try:
            return torch.stack([self.transform(pictures.picture(int(i)), generator) for i in rows])
        except InputError as error:  # a picture that is missing or damaged
            raise InputError(f"{error} {HOW_TO_SKIP}") from None

    def batches(
        self, indices: Sequence[IndexBatch], start: int = 0, seed: int = 0
    ) -> Iterator[Batch]:
        """Batches from the `start`-th on, in order, read ahead by the workers.

        Each batch has random numbers of its own, from `seed` and its place, so neither resuming
        nor the number of workers changes what augmentation does.
        """
        if self.resident:
            yield from self._resident_batches(indices[start:])
            return
        jobs = ((index, seed, place) for place, index in enumerate(indices) if place >= start)
        if self.workers < 1:
            yield from (self._job(*job)[0] for job in jobs)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="simgrad-batches")
        try:
            ahead: deque[Future[tuple[Batch, torch.cuda.Event | None]]] = deque(
                pool.submit(self._job, *job) for job in islice(jobs, 2 * self.workers)
            )
            while ahead:
                batch, sent = ahead.popleft().result()
                ahead.extend(pool.submit(self._job, *job) for job in islice(jobs, 1))
                yield batch if sent is None else _arrived(batch, sent)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _job(
        self, index: IndexBatch, seed: int, place: int
    ) -> tuple[Batch, torch.cuda.Event | None]:
        """A batch; and, where it is on its way to a GPU, what tells that it is there."""
        mixed = np.random.SeedSequence([abs(seed), place]).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(mixed >> np.uint64(1)))
        batch = self.fetch(index, generator)
        if not batch.images.is_cuda:
            return batch, None
        return batch, torch.cuda.current_stream(self.device).record_event()

    def _resident_batches(self, indices: Sequence[IndexBatch]) -> Iterator[Batch]:
        """One upload of all rows, then slices of it."""
        if not indices:
            return
        names = ("images", "captions", "image_of_caption")
        columns = []
        for name in names:
            parts = [getattr(index, name) for index in indices]
            rows = torch.from_numpy(np.concatenate(parts)).to(self.device)
            columns.append(torch.split(rows, [len(part) for part in parts]))
        for index, images, captions, position in zip(indices, *columns, strict=True):
            yield self._gather(index, images, captions, position, None)


def resident_features(split: Split, device: torch.device, block: int = 4096) -> Tensor:
    """All features of a split as one tensor, copied in blocks so that the host holds only one.

    Pictures stay bytes; all else is float32.
    """
    assert split.features is not None
    kind = torch.from_numpy(split.features.rows(np.zeros(0, dtype=np.int64))).dtype
    whole = torch.empty((split.num_images, *split.features.shape), device=device, dtype=kind)
    for start in range(0, split.num_images, block):
        rows = np.arange(start, min(start + block, split.num_images))
        whole[start : start + len(rows)] = torch.from_numpy(split.features.rows(rows)).to(device)
    return whole


class Tokens:
    """Token lists of different lengths end to end; a batch of them is one gather."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self._sizes = np.array([len(tokens) for tokens in lists], dtype=np.int64)  # host copy
        flat = np.fromiter((t for tokens in lists for t in tokens), np.int64, self._sizes.sum())
        # A last element to read from where a caption has ended; the mask hides it.
        self._flat = torch.from_numpy(np.append(flat, 0))
        self._lengths = torch.from_numpy(self._sizes.copy())
        self._start = torch.from_numpy(np.cumsum(self._sizes) - self._sizes)
        self._steps = torch.arange(max(1, int(self._sizes.max(initial=1))))

    @classmethod
    def of(cls, split: Split, tokenizer: Tokenizer) -> "Tokens":
        """The tokens of every caption of a split."""
        return cls([tokenizer.encode(caption) for caption in split.captions])

    def to(self, device: torch.device) -> "Tokens":
        """A copy on another device; this one may serve others."""
        moved = copy(self)
        for name in ("_flat", "_lengths", "_start", "_steps"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved

    def sizes(self, rows: Rows) -> Rows:
        found: Rows = self._sizes[rows]
        return found

    def gather(self, rows: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """(m, length) tokens padded with 0 and (m,) lengths; longer captions are cut."""
        if length > len(self._steps):
            self._steps = torch.arange(length, device=self._steps.device)
        steps = self._steps[:length]
        lengths = self._lengths[rows].clamp(max=length)
        within = steps < lengths[:, None]
        place = torch.where(within, self._start[rows][:, None] + steps, len(self._flat) - 1)
        return self._flat[place], lengths


class _Vectors:
    """Captions that were encoded before, in the place of their tokens."""

    def __init__(self, vectors: Tensor) -> None:
        self._vectors = vectors.cpu()

    def to(self, device: torch.device) -> "_Vectors":
        moved = copy(self)
        moved._vectors = self._vectors.to(device)
        return moved

    def sizes(self, rows: Rows) -> Rows:
        return np.ones_like(rows)

    def gather(self, rows: Tensor, length: int) -> tuple[Tensor, Tensor]:
        return self._vectors[rows], torch.ones_like(rows)


def _arrived(batch: Batch, sent: torch.cuda.Event) -> Batch:
    """A batch that another thread sent, on that thread's stream: the work here waits for it, and
    its memory is not given away before that is done."""
    here = torch.cuda.current_stream(batch.images.device)
    here.wait_event(sent)
    drawn = () if batch.drawn is None else (batch.drawn.places,)
    for part in (batch.images, batch.tokens, batch.lengths, batch.image_of_caption, *drawn):
        part.record_stream(here)
    return batch
