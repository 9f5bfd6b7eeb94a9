"""Where similarities come from: embeddings, a matrix, a function, or the mean of several.

Counting asks for one block of image rows against all captions at a time, so the whole matrix
need never exist. A block may be overwritten by whoever asked for it, and lasts until the next.
"""

import contextlib
import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.devices import widest
from simgrad.core.errors import InputError, NotFinite
from simgrad.evaluation.duplicates import first_identical

SimilarityBlock = Callable[[int, int], Tensor]


class Scores(ABC):
    """Similarities of images (rows) and captions (columns), made block by block."""

    num_images: int
    num_captions: int
    # For each image or caption the first one that is identical to it; None: all differ.
    same_images: Tensor | None = None
    same_captions: Tensor | None = None

    @abstractmethod
    def compute(self, start: int, stop: int) -> Tensor:
        """Similarities of images start..stop with every caption, (rows, captions)."""

    @abstractmethod
    def select(self, images: Tensor, captions: Tensor) -> "Scores":
        """The same scores for some images and captions only."""

    @abstractmethod
    def transposed(self) -> "Scores":
        """Captions as rows, images as columns."""

    def vectors(self) -> tuple[Tensor, Tensor] | None:
        """Vectors of images and captions whose products these are; None: they are no products."""
        return None

    def guess_own(self, image: Tensor, caption: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """The score of each pair, and how far off it may be (None: exact).

        The guess may come from another kernel than `compute`: it only says where to look.
        Without one (None) the blocks, if there are several, have to be made twice.
        """
        return None

    def block_size(self) -> int:
        """Similarities in a block: some 50 MB."""
        return 12_500_000

    def block_rows(self, rows: int | None = None) -> int:
        """Images in a block, where nobody asks for `rows`: enough for a product to be efficient."""
        return rows or max(256, self.block_size() // max(self.num_captions, 1))

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, int, Tensor]]:
        """(start, stop, block) over all images; identical images get identical rows."""
        step = self.block_rows(rows)
        kept: dict[int, Tensor] = {}  # rows that an identical image will need
        for start in range(0, self.num_images, step):
            stop = min(start + step, self.num_images)
            block = self.compute(start, stop)
            if block.shape != (stop - start, self.num_captions):
                raise InputError(
                    f"the similarities of images {start} to {stop - 1} have the shape "
                    f"{tuple(block.shape)}, not {(stop - start, self.num_captions)}."
                )
            if self.same_captions is not None:
                later = (self.same_captions != _arange(self.same_captions)).nonzero()[:, 0]
                block[:, later] = block[:, self.same_captions[later]]
            if self.same_images is not None:
                self._copy_rows(block, start, kept)
            yield start, stop, block

    def _copy_rows(self, block: Tensor, start: int, kept: dict[int, Tensor]) -> None:
        assert self.same_images is not None
        first = self.same_images.tolist()
        last_use = {f: i for i, f in enumerate(first) if f != i}
        for i in range(start, start + len(block)):
            if i in last_use:
                kept[i] = block[i - start].clone()
            if first[i] != i:
                block[i - start] = kept[first[i]]
                if last_use[first[i]] == i:
                    del kept[first[i]]


@dataclass(frozen=True)
class _Side:
    """Vectors of all images or all captions, and what is known of them."""

    vectors: Tensor
    lengths: Tensor
    same: Tensor | None  # for each the first one that is identical to it; None: all differ

    @staticmethod
    def of(vectors: Tensor, lengths: Tensor | None = None) -> "_Side":
        lengths = vectors.norm(dim=1) if lengths is None else lengths
        return _Side(vectors, lengths, first_identical(vectors))

    def part(self, chosen: Tensor) -> "_Side":
        """Some of them, in this order."""
        chosen = chosen.to(self.vectors.device)
        if torch.equal(chosen, _arange(self.vectors)):
            return self
        vectors = self.vectors[chosen]
        distinct = self.same is None and len(torch.unique(chosen)) == len(chosen)
        same = first_identical(vectors, distinct=distinct)
        return _Side(vectors, self.lengths[chosen], same)


class Embeddings(Scores):
    """Dot products of image and caption embeddings."""

    def __init__(
        self, images: Tensor, captions: Tensor, lengths: tuple[Tensor, Tensor] | None = None
    ) -> None:
        known = (None, None) if lengths is None else lengths
        self._join(_Side.of(images, known[0]), _Side.of(captions, known[1]))

    def _join(self, images: _Side, captions: _Side) -> "Embeddings":
        self._sides = images, captions
        self.images, self.captions = images.vectors, captions.vectors
        self.lengths = images.lengths, captions.lengths
        self.num_images, self.num_captions = len(self.images), len(self.captions)
        self.same_images, self.same_captions = images.same, captions.same
        self._buffer: Tensor | None = None  # fresh memory for each block would cost time
        return self

    def block_size(self) -> int:
        # A GPU waits for the start of each operation: one block of 512 MiB holds COCO's test set.
        return 2**27 if self.images.is_cuda else super().block_size()

    def compute(self, start: int, stop: int) -> Tensor:
        if self._buffer is None or len(self._buffer) < stop - start:
            self._buffer = self.images.new_empty((stop - start, self.num_captions))
        with exact_products(self.images.device.type):
            torch.mm(self.images[start:stop], self.captions.T, out=self._buffer[: stop - start])
        return self._buffer[: stop - start]

    def select(self, images: Tensor, captions: Tensor) -> "Embeddings":
        left, right = self._sides
        return Embeddings.__new__(Embeddings)._join(left.part(images), right.part(captions))

    def transposed(self) -> "Embeddings":
        left, right = self._sides
        return Embeddings.__new__(Embeddings)._join(right, left)

    def vectors(self) -> tuple[Tensor, Tensor]:
        return self.images, self.captions

    def guess_own(self, image: Tensor, caption: Tensor) -> tuple[Tensor, Tensor | None] | None:
        image, caption = image.to(self.images.device), caption.to(self.images.device)
        on_cpu = self.images.device.type == "cpu"
        step = 256 if on_cpu else 1 << 16  # stay in the CPU's cache
        parts = zip(torch.split(image, step), torch.split(caption, step), strict=True)
        if on_cpu:  # one operation, where torch takes two
            left, right = self.images.numpy(), self.captions.numpy()
            found = [np.einsum("ij,ij->i", left[i.numpy()], right[c.numpy()]) for i, c in parts]
            own = torch.from_numpy(np.concatenate(found))
        else:
            own = torch.cat([(self.images[i] * self.captions[c]).sum(1) for i, c in parts])
        lengths = self.lengths[0][image] * self.lengths[1][caption]
        return own, 8 * torch.finfo(own.dtype).eps * lengths


class Matrix(Scores):
    """A similarity matrix that exists already."""

    def __init__(self, similarities: Tensor) -> None:
        self.similarities = similarities
        self.num_images, self.num_captions = similarities.shape

    def compute(self, start: int, stop: int) -> Tensor:
        block = _full(self.similarities[start:stop].clone())
        check_block(block, start)
        return block

    def select(self, images: Tensor, captions: Tensor) -> "Matrix":
        device = self.similarities.device
        return Matrix(self.similarities[images.to(device)][:, captions.to(device)])

    def transposed(self) -> "Matrix":
        return Matrix(self.similarities.T)

    def guess_own(self, image: Tensor, caption: Tensor) -> tuple[Tensor, Tensor | None] | None:
        device = self.similarities.device
        return _full(self.similarities[image.to(device), caption.to(device)]), None


class Blocks(Scores):
    """Similarities from a function of yours: `similarity_block(start, stop)`."""

    def __init__(self, block: SimilarityBlock, num_images: int, num_captions: int) -> None:
        self.block, self.num_images, self.num_captions = block, num_images, num_captions

    def compute(self, start: int, stop: int) -> Tensor:
        block = as_floats(self.block(start, stop), "similarities").clone()
        check_block(block, start)
        return block

    def select(self, images: Tensor, captions: Tensor) -> "Blocks":
        if len(images) == self.num_images and len(captions) == self.num_captions:
            return self

        def chosen(start: int, stop: int) -> Tensor:
            rows = [self.compute(i, i + 1) for i in images[start:stop].tolist()]
            return torch.cat(rows)[:, captions]

        return Blocks(chosen, len(images), len(captions))

    def transposed(self) -> "Matrix":
        whole = torch.cat([block for _, _, block in self.blocks()])
        return Matrix(whole.T)


class Average(Scores):
    """An ensemble: the mean of the similarities of several systems."""

    def __init__(self, members: Sequence[Scores]) -> None:
        shapes = {(m.num_images, m.num_captions) for m in members}
        if len(shapes) != 1:
            found = ", ".join(f"{n} x {m}" for n, m in sorted(shapes)) or "none"
            raise InputError(f"an ensemble needs similarities of one shape, not {found}.")
        self.members = list(members)
        self.num_images, self.num_captions = shapes.pop()
        self.same_images = _same_in_all([m.same_images for m in members])
        self.same_captions = _same_in_all([m.same_captions for m in members])

    def compute(self, start: int, stop: int) -> Tensor:
        # Not in place: a member that is there twice writes into the same memory again.
        total = functools.reduce(torch.add, (m.compute(start, stop) for m in self.members))
        check_block(total, start)  # infinities of two members may cancel out
        return total / len(self.members)

    def select(self, images: Tensor, captions: Tensor) -> "Average":
        return Average([m.select(images, captions) for m in self.members])

    def transposed(self) -> "Average":
        return Average([m.transposed() for m in self.members])

    def guess_own(self, image: Tensor, caption: Tensor) -> tuple[Tensor, Tensor | None] | None:
        guesses = [m.guess_own(image, caption) for m in self.members]
        known = [guess for guess in guesses if guess is not None]
        if len(known) < len(guesses):
            return None
        own = torch.stack([center for center, _ in known]).mean(dim=0)
        # The mean rounds too: a few units in the last place of the largest member.
        slack = 8 * torch.finfo(own.dtype).eps * torch.stack([c.abs() for c, _ in known]).amax(0)
        return own, slack + sum(t for _, t in known if t is not None)


class Without(Scores):
    """The same similarities, less some pairs (k, 2) of image and caption: -inf, last of all."""

    def __init__(self, inner: Scores, pairs: Tensor) -> None:
        self.inner, self.pairs = inner, pairs
        self.num_images, self.num_captions = inner.num_images, inner.num_captions

    def compute(self, start: int, stop: int) -> Tensor:
        block = self.inner.compute(start, stop)
        here = (self.pairs[:, 0] >= start) & (self.pairs[:, 0] < stop)
        rows, columns = self.pairs[here].T.to(block.device)
        block[rows - start, columns] = -torch.inf
        return block

    def select(self, images: Tensor, captions: Tensor) -> "Without":
        rows, columns = (
            torch.full((count,), -1).index_copy_(0, chosen.cpu(), torch.arange(len(chosen)))
            for count, chosen in ((self.num_images, images), (self.num_captions, captions))
        )
        pairs = torch.stack([rows[self.pairs[:, 0]], columns[self.pairs[:, 1]]], 1)
        return Without(self.inner.select(images, captions), pairs[(pairs >= 0).all(1)])

    def transposed(self) -> "Without":
        return Without(self.inner.transposed(), self.pairs.flip(1))

    def guess_own(self, image: Tensor, caption: Tensor) -> tuple[Tensor, Tensor | None] | None:
        return self.inner.guess_own(image, caption)


def _same_in_all(firsts: Sequence[Tensor | None]) -> Tensor | None:
    if any(first is None for first in firsts):
        return None
    return first_identical(torch.stack([f for f in firsts if f is not None], dim=1))


def as_floats(values: Any, name: str, device: str | torch.device | None = None) -> Tensor:
    """A tensor of float32 or float64 from whatever array was given."""
    if isinstance(values, Tensor):
        if values.is_meta:
            raise InputError(f"{name} lies on the device 'meta', which holds no numbers.")
        tensor = values.detach()
    else:
        if isinstance(values, str | Path):
            raise InputError(
                f"{name}: '{values}' is a name; numbers are needed. `simgrad.open` reads files, "
                "and what it gives has `.evaluate()`."
            )
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise InputError(f"{name} has the type {array.dtype}; numbers are needed.")
        with warnings.catch_warnings():  # a read-only memory map is fine: nobody writes to it
            warnings.simplefilter("ignore", UserWarning)
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
            tensor = torch.from_numpy(np.ascontiguousarray(array))
    if tensor.is_complex():
        raise InputError(f"{name} has the type {tensor.dtype}; real numbers are needed.")
    place = tensor.device if device is None else torch.device(device)
    if tensor.dtype == torch.float64:
        tensor = tensor.to(widest(place))  # before it goes where there may be no float64
    return _full(tensor.to(place))


def _full(tensor: Tensor) -> Tensor:
    """float64 stays, everything else becomes float32."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def check_block(block: Tensor, start: int) -> None:
    """Refuse NaN, naming where it is."""
    # One sum is far cheaper than asking each entry; infinities of both signs also end here.
    if bool(torch.isnan(block.sum())) and bool(torch.isnan(block).any()):
        row, column = torch.isnan(block).nonzero()[0].tolist()
        raise NotFinite(
            f"the similarity of image {start + row} and caption {column} is NaN: "
            "it cannot be ranked. Look for NaN in the embeddings or a zero vector normalised."
        )


@contextlib.contextmanager
def exact_products(device: str) -> Iterator[None]:
    """Matrix products in full float32: no TF32, no autocast, whatever the caller has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device_type=device, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _arange(like: Tensor) -> Tensor:
    return torch.arange(len(like), device=like.device)
