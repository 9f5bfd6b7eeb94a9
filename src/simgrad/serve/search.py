"""Search: a sentence finds pictures, a picture finds captions and pictures like it.

Models that embed are searched by a matrix product, exactly (`exact.py`). Above a million items,
FAISS is used where it is installed (`approximate.py`). Models that compare sets are asked
for similarities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Split
from simgrad.models import Encoded, RetrievalModel
from simgrad.serve.approximate import LARGE, Approximate, available
from simgrad.serve.embedder import Embedder
from simgrad.serve.exact import Exact, Ranked, best
from simgrad.serve.folder import FolderIndex, folder_embeddings
from simgrad.serve.index import place_of, split_embeddings
from simgrad.serve.recognise import find

if TYPE_CHECKING:
    from PIL.Image import Image

MOST = 1000  # results of one query


class Gallery:
    """Encoded items of one kind, images or captions, that can be searched."""

    def __init__(
        self, model: RetrievalModel, items: Encoded, kind: str, index: Path | None
    ) -> None:
        self.model, self.items, self.kind, self._index_path = model, items, kind, index

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def _vectors(self) -> Exact | Approximate:
        vectors = self.items.vectors
        assert vectors is not None
        if self._index_path is None or len(self) < LARGE or not available():
            return Exact(vectors)
        return Approximate.open(self._index_path, vectors)

    @torch.no_grad()
    def search(self, query: Encoded, top: int) -> Ranked:
        """The items that fit a query of the other kind."""
        if self.model.embeds and query.vectors is not None and self.items.vectors is not None:
            return self._vectors.search(query.vectors[0].cpu(), top)
        device = next(self.model.parameters()).device
        query, scores = query.to(device), []
        for start in range(0, len(self), 512):
            piece = self.items.select(slice(start, start + 512)).to(device)
            pair = (piece, query) if self.kind == "images" else (query, piece)
            scores.append(self.model.similarities(*pair).flatten().float().cpu())
        return best(torch.cat(scores), top) if scores else []

    def like(self, query: Encoded, top: int) -> Ranked:
        """Items like one of the same kind; none where the model has no vectors."""
        if query.vectors is None or self.items.vectors is None or not self.model.embeds:
            return []
        return self._vectors.search(query.vectors[0].cpu(), top)


@dataclass(frozen=True)
class Hit:
    """One result."""

    rank: int
    row: int
    score: float
    name: str  # of the picture; of a caption's picture
    captions: tuple[str, ...]  # of the picture; the caption itself
    right: bool | None = None  # known to belong to the query; None: not known


@dataclass(frozen=True)
class Results:
    """What a query found."""

    query: str
    kind: str  # "sentence" or "picture"
    images: list[Hit] = field(default_factory=list)
    captions: list[Hit] = field(default_factory=list)
    searched_images: int = 0
    searched_captions: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


class Searcher:
    """A model and what it searches: a split of the run's data, a folder of pictures, or both."""

    def __init__(
        self,
        embedder: Embedder,
        split: str | None = "test",
        folder: Path | None = None,
        *,
        dataset: Dataset | None = None,
        exact: bool = False,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.embedder = embedder
        self.split: Split | None = None
        self.folder: FolderIndex | None = None
        self.images: Gallery | None = None
        self.captions: Gallery | None = None
        model, place = embedder.model, None if exact else place_of(embedder)
        if embedder.run is not None and split is not None:
            dataset = dataset if dataset is not None else embedder.run.dataset()
            self.fingerprint = dataset.fingerprint()
            self.split = dataset.split(split)
            images, captions = split_embeddings(embedder, dataset, self.split, self.fingerprint)
            name = f"{split}-{self.fingerprint[:16]}"
            where = None if place is None else place / name
            self.images = Gallery(model, images, "images", where and where / "images.faiss")
            self.captions = Gallery(model, captions, "captions", where and where / "captions.faiss")
        if folder is not None:
            self.folder = folder_embeddings(embedder, folder, report=report)
            items = self.folder.encoded
            self.images = Gallery(model, items, "images", None) if items is not None else None
        elif embedder.run is None:
            raise InputError(f"{embedder.path} is a checkpoint without data: give --folder.")

    def sentence(self, text: str, top: int = 10) -> Results:
        """Pictures that a sentence describes."""
        start = perf_counter()
        query = self.embedder.sentence(text)
        ranked = self.images.search(query, _checked(top)) if self.images is not None else []
        seconds = perf_counter() - start
        unknown = self.embedder.unknown_words(text)
        notes = (f"not in the model's vocabulary: {', '.join(unknown)[:200]}",) if unknown else ()
        own = self._captions_like(text)
        images = [self._image(k, row, score, own) for k, (row, score) in enumerate(ranked, 1)]
        return Results(text, "sentence", images, [], len(self.images or ()), 0, seconds, notes)

    def picture(self, picture: "Image", name: str, top: int = 10) -> Results:
        """Captions that fit a picture, and pictures like it."""
        row = self.recognise(picture)
        if row is not None:
            return self.row(row, top, name)
        start = perf_counter()
        return self._ranked(self.embedder.pictures([picture]), name, top, start)

    def row(self, row: int, top: int = 10, name: str | None = None) -> Results:
        """The same for a picture of the split, by its row."""
        assert self.split is not None
        start = perf_counter()
        if self.folder is None and self.images is not None:
            query = self.images.items.select(slice(row, row + 1))
        elif self.split.features is not None:
            query = self.embedder.features(self.split.features.rows(np.array([row])))
        else:
            assert self.split.pictures is not None
            query = self.embedder.pictures([self.split.pictures.picture(row)])
        name = name or self.split.image_names[row]
        return self._ranked(query, name, top, start, row)

    def recognise(self, picture: "Image") -> int | None:
        """The row of a picture that belongs to the split, where only features can be read."""

        if self.split is None or self.split.features is None or self.split.pictures is None:
            return None
        return find(picture, self.split, place_of(self.embedder).parent, self.fingerprint)

    def _ranked(
        self, query: Encoded, name: str, top: int, start: float, row: int | None = None
    ) -> Results:
        top = _checked(top)
        captions = self.captions.search(query, top) if self.captions is not None else []
        like = self.images.like(query, top + 1) if self.images is not None else []
        if self.folder is None:
            like = [(r, score) for r, score in like if r != row]
        seconds = perf_counter() - start
        notes: tuple[str, ...] = ()
        if row is not None and self.split is not None and name != self.split.image_names[row]:
            notes = (f"this is {self.split.image_names[row]} of the {self.split.name} split",)
        return Results(
            name,
            "picture",
            [self._image(k, r, score, None) for k, (r, score) in enumerate(like[:top], 1)],
            [self._caption(k, r, score, row) for k, (r, score) in enumerate(captions, 1)],
            len(self.images or ()),
            len(self.captions or ()),
            seconds,
            notes,
        )

    def _image(self, rank: int, row: int, score: float, own: list[int] | None) -> Hit:
        if self.folder is not None:
            return Hit(rank, row, score, self.folder.names[row], ())
        assert self.split is not None
        captions = tuple(self.split.captions[int(c)] for c in self.split.captions_of(row))
        right = self._fits(row, own[0]) if own else None
        return Hit(rank, row, score, self.split.image_names[row], captions, right)

    def _caption(self, rank: int, row: int, score: float, image: int | None) -> Hit:
        assert self.split is not None
        owner = int(self.split.image_of_caption[row])
        right = None if image is None else self._fits(image, row)
        return Hit(
            rank, row, score, self.split.image_names[owner], (self.split.captions[row],), right
        )

    def _fits(self, image: int, caption: int) -> bool:
        assert self.split is not None
        if int(self.split.image_of_caption[caption]) == image:
            return True
        truth = self.split.truth
        return truth is not None and bool(truth(np.array([image]), np.array([caption]))[0])

    def _captions_like(self, text: str) -> list[int]:
        return self._rows_of_caption.get(text.strip().lower(), [])

    @cached_property
    def _rows_of_caption(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row, caption in enumerate(self.split.captions if self.split is not None else ()):
            found.setdefault(caption.strip().lower(), []).append(row)
        return found


def _checked(top: int) -> int:
    if not 1 <= top <= MOST:
        raise InputError(f"--top is 1 to {MOST:,}, not {top}.")
    return top


def row_named(names: Sequence[str], name: str) -> int | None:
    """The row of a picture that goes by a name."""
    return next((row for row, known in enumerate(names) if known == name), None)
