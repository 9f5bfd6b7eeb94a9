"""Which images and captions go together in a batch.

The rows of every batch of an epoch follow from (seed, epoch) alone: the order is the same whatever
reads the data, and training resumes in mid-epoch by skipping the first batches.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split

Kind = Literal["pairs", "images", "distinct"]


@dataclass(frozen=True)
class IndexBatch:
    """Which rows of a split make one batch.

    Examples:
        >>> train = simgrad.data.open_dataset("scenes(train=8, val=1, test=1)").split("train")
        >>> batch = simgrad.data.Sampler("images", batch=2, captions_per_image=2).epoch(train, 0)[0]
        >>> len(batch.images), len(batch.captions), batch.image_of_caption.tolist()
        (2, 4, [0, 0, 1, 1])
    """

    images: Rows  # (n,) distinct rows of the split
    captions: Rows  # (m,) rows of the split
    image_of_caption: Rows  # (m,) position in `images`


@dataclass(frozen=True)
class OfflineIndex(IndexBatch):
    """A batch followed by what was drawn for it; places are positions in `images`, `captions`."""

    own_images: int = 0
    own_captions: int = 0
    for_each: int = 2  # images, and captions, for a pair; with 1 the negative is also the partner
    mined_caption: Rows | None = None  # (own_captions,) T̂
    mined_image: Rows | None = None  # Î
    partner_image: Rows | None = None  # Ĩ
    partner_caption: Rows | None = None  # T̃

    def places(self) -> dict[str, Rows]:
        """Where the drawn items stand."""
        found = {
            "caption": self.mined_caption,
            "image": self.mined_image,
            "partner_image": self.partner_image,
            "partner_caption": self.partner_caption,
        }
        return {k: v for k, v in found.items() if v is not None}


def own_size(index: IndexBatch) -> tuple[int, int]:
    """How many images and captions belong to the batch proper."""
    if isinstance(index, OfflineIndex):
        return index.own_images, index.own_captions
    return len(index.images), len(index.captions)


class Drawn(NamedTuple):
    """What was drawn for a batch from outside it: sizes on the host, places on the device."""

    own_images: int
    own_captions: int
    places: Tensor  # (4, own_captions): of T̂, Î, Ĩ and T̃
    images_each: int  # drawn for a pair: Î, and Ĩ where it is not the same

    @staticmethod
    def of(index: OfflineIndex, device: torch.device) -> "Drawn":
        places = np.stack(list(index.places().values()))
        return Drawn(*own_size(index), torch.from_numpy(places).to(device), index.for_each)


@dataclass(frozen=True)
class Sampler:
    """Which rows go together.

    pairs: captions shuffled, `batch` at a time, with their images (the published way).
    images: images shuffled, `batch` at a time, each with up to `captions_per_image` captions.
    distinct: like pairs, but no two captions of one image in a batch.

    Examples:
        >>> train = simgrad.data.open_dataset("scenes(train=8, val=1, test=1)").split("train")
        >>> batches = simgrad.data.Sampler("pairs", batch=16).epoch(train, 0)
        >>> [len(batch.captions) for batch in batches]
        [16, 16, 8]
    """

    kind: Kind = "pairs"
    batch: int = 128
    captions_per_image: int = 5
    seed: int = 0
    drop_last: bool = False  # leave out batches that are not full

    def __post_init__(self) -> None:
        if self.kind not in ("pairs", "images", "distinct"):
            raise InputError(f"batches are of pairs, images or distinct, not {self.kind!r:.40}.")
        if self.batch < 1 or self.captions_per_image < 1:
            raise InputError("a batch needs at least one image and one caption per image.")

    def epoch(self, split: Split, epoch: int) -> list[IndexBatch]:
        """Every batch of an epoch; the same for the same (seed, epoch)."""
        random = np.random.default_rng([abs(self.seed), self.seed < 0, epoch])
        if self.kind == "images":
            return self._images(split, random)
        order = random.permutation(split.num_captions)
        if self.kind == "distinct":
            groups = _apart(order, split.image_of_caption, self.batch)
        else:
            groups = [order[i : i + self.batch] for i in range(0, len(order), self.batch)]
        if self.drop_last:
            groups = [group for group in groups if len(group) == self.batch]
        return [index_batch(split, group) for group in groups]

    def _images(self, split: Split, random: np.random.Generator) -> list[IndexBatch]:
        # Captions in random order within each image; rank = place within the image.
        order = np.lexsort((random.random(split.num_captions), split.image_of_caption))
        counts = split.captions_per_image
        first = np.cumsum(counts) - counts
        kept = np.minimum(counts, self.captions_per_image)
        images = random.permutation(np.flatnonzero(counts))
        batches = []
        for i in range(0, len(images), self.batch):
            chosen = images[i : i + self.batch]
            if self.drop_last and len(chosen) < self.batch:
                break
            position = np.repeat(np.arange(len(chosen)), kept[chosen])
            start = np.cumsum(kept[chosen]) - kept[chosen]
            rank = np.arange(len(position)) - start[position]
            captions = order[first[chosen][position] + rank]
            batches.append(IndexBatch(chosen, captions, position))
        return batches


def index_batch(split: Split, captions: Rows) -> IndexBatch:
    """These captions and their images, each image once, in order of first appearance.

    With no image twice, caption i belongs to image i: the positives are the diagonal.
    """
    captions = np.asarray(captions, dtype=np.int64)
    rows = split.image_of_caption[captions]
    images, first, position = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return IndexBatch(images[order], captions, place[position])


def in_order(split: Split, batch: int) -> list[IndexBatch]:
    """All images of a split in order, each with all its captions, for evaluation."""
    order = np.argsort(split.image_of_caption, kind="stable")
    ends = np.cumsum(split.captions_per_image)
    batches = []
    for start in range(0, split.num_images, batch):
        images = np.arange(start, min(start + batch, split.num_images))
        captions = order[ends[start - 1] if start else 0 : ends[images[-1]]]
        batches.append(IndexBatch(images, captions, split.image_of_caption[captions] - start))
    return batches


def _apart(order: Rows, image_of_caption: Rows, batch: int) -> list[Rows]:
    """Fill batches in order; a caption whose image is already there waits for the next batch."""
    images = image_of_caption[order].tolist()
    fresh = iter(zip(order.tolist(), images, strict=True))
    waiting: deque[tuple[int, int]] = deque()
    groups: list[Rows] = []
    exhausted = False
    while not exhausted or waiting:
        group: list[int] = []
        seen: set[int] = set()
        again: deque[tuple[int, int]] = deque()
        while len(group) < batch:
            if waiting:
                caption, image = waiting.popleft()
            else:
                following = next(fresh, None)
                if following is None:
                    exhausted = True
                    break
                caption, image = following
            if image in seen:
                again.append((caption, image))
            else:
                seen.add(image)
                group.append(caption)
        waiting = again + waiting
        if group:
            groups.append(np.array(group, dtype=np.int64))
    return groups
