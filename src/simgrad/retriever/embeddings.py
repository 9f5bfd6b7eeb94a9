"""Embeddings of a model and its data: computed once, kept on disk, searched; of a folder that has
grown only the new pictures are embedded.

RUN/search/KEY/ (or the cache folder, where the run's is not writable) holds what the weights with
hash KEY made. Arrays are never changed; a JSON file, written last, says which belong together, what
they were made from and what they must look like. So a reader sees the old state or the new one,
a killed writer leaves nothing that counts, and what was damaged or made from other data is made
again. One writer at a time: the others wait for its lock.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.derived import cache_folder, read_array, read_kept, write_array, write_kept
from simgrad.core.errors import InputError
from simgrad.core.files import lock, sha256, sweep
from simgrad.data.base import Split
from simgrad.data.subset import SomeFeatures
from simgrad.models import Encoded, RetrievalModel
from simgrad.retriever.encoding import Report
from simgrad.search.approximate import AUTO, EXACT, Approximate, default_index
from simgrad.search.exact import Exact, Ranked, best

if TYPE_CHECKING:
    from simgrad.retriever.retriever import Retriever

_PARTS = ("vectors", "tokens", "mask")
# What reading a kept file can end in; all of it means: make it again.
UNUSABLE = (InputError, OSError, ValueError, KeyError, TypeError, AttributeError)


def place_of(retriever: "Retriever") -> Path:
    """Where this model's embeddings are kept."""
    if retriever.own_place is not None:
        return retriever.own_place / retriever.key
    if retriever.path is None:  # a pretrained model
        return cache_folder() / "pretrained" / "search" / retriever.key
    own = retriever.path / "search" / retriever.key
    try:
        own.mkdir(parents=True, exist_ok=True)
        if os.access(own, os.W_OK):
            return own
    except OSError:
        pass
    return cache_folder() / "search" / retriever.key


def write_encoded(folder: Path, name: str, encoded: Encoded) -> dict[str, Any]:
    """vectors, tokens and mask as NAME.PART.npy; what to check them by."""
    told = {}
    for part in _PARTS:
        tensor: Tensor | None = getattr(encoded, part)
        if tensor is not None:
            told[part] = write_array(folder / f"{name}.{part}.npy", tensor.cpu().numpy())
    return told


def read_encoded(folder: Path, name: str, told: dict[str, Any]) -> Encoded:
    """What `write_encoded` wrote, memory-mapped."""
    parts: dict[str, Tensor] = {}
    for part in _PARTS:
        if part in told:
            parts[part] = torch.from_numpy(read_array(folder / f"{name}.{part}.npy", told[part]))
    return Encoded(**parts)


def split_embeddings(
    retriever: "Retriever", split: Split, fingerprint: str, kind: str, report: Report
) -> Encoded:
    """The images or the captions of a split; `report` is called while they are encoded."""
    folder = place_of(retriever) / f"{split.name}-{fingerprint[:16]}"
    index = folder / f"{kind}.json"
    made_from = {"weights": retriever.key, "data": fingerprint}
    ready = _ready(index, kind, made_from)
    if ready is not None:
        return ready
    what = f"the embeddings of {split.dataset}"
    try:
        with lock(folder.with_name(f"{folder.name}-{kind}.lock"), what=what):
            ready = _ready(index, kind, made_from)
            if ready is None:
                sweep(folder)
                ready = _encode(retriever, split, kind, report)
                write_kept(index, write_encoded(folder, kind, ready), made_from)
            return ready
    except OSError:  # no place to keep them: make them each time
        return _encode(retriever, split, kind, report)


def _encode(retriever: "Retriever", split: Split, kind: str, report: Report) -> Encoded:
    retriever.fitting(split)
    if kind == "images":  # captions that nobody asks for are not read
        none, vectors = np.zeros(0, dtype=np.int64), split.caption_vectors
        split = replace(
            split,
            captions=[],
            image_of_caption=none,
            caption_ids=None,
            caption_places=None,
            caption_vectors=None if vectors is None else SomeFeatures(vectors, none),
        )
    return retriever.encode_side(split, kind, report).to("cpu")


def _ready(index: Path, kind: str, made_from: dict[str, str]) -> Encoded | None:
    try:
        return read_encoded(index.parent, kind, read_kept(index, made_from))
    except UNUSABLE:
        return None  # none yet, or damaged


class Gallery:
    """Items of one kind, and how they are searched.

    `index`: `auto`, `exact`, or a factory string of FAISS; it is kept in `place`. `queries` gives
    vectors of the other kind, by which the recall of an approximate index is measured.
    """

    def __init__(
        self,
        model: RetrievalModel,
        items: Encoded,
        kind: str,
        place: Path | None = None,
        index: str = AUTO,
        queries: Callable[[], Tensor | None] = lambda: None,
    ) -> None:
        self.model, self.items, self.kind = model, items, kind
        self._found: Exact | Approximate | None = None
        if model.embeds and items.vectors is not None:
            self._found = _index(items.vectors, kind, place, index, queries)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def note(self) -> str:
        """How much an approximate index finds; nothing of exact search."""
        return str(self._found.built) if isinstance(self._found, Approximate) else ""

    @torch.no_grad()
    def search(self, query: Encoded, top: int) -> Ranked:
        """The items that fit a query of the other kind."""
        if self._found is not None and query.vectors is not None:
            return self._found.search(query.vectors[0].cpu(), top)
        device = next(self.model.parameters()).device
        query, scores = query.to(device), []
        for start in range(0, len(self), 512):
            piece = self.items.select(slice(start, start + 512)).to(device)
            pair = (piece, query) if self.kind == "images" else (query, piece)
            scores.append(self.model.similarities(*pair).flatten().float().cpu())
        return best(torch.cat(scores), top) if scores else []

    def like(self, query: Encoded, top: int) -> Ranked:
        """Items like one of the same kind; none where the model has no vectors."""
        if query.vectors is None or self._found is None:
            return []
        return self._found.search(query.vectors[0].cpu(), top)


def _index(
    vectors: Tensor,
    kind: str,
    place: Path | None,
    index: str,
    queries: Callable[[], Tensor | None],
) -> Exact | Approximate:
    index = default_index(*vectors.shape) if index == AUTO else index
    if place is None or index == EXACT:
        return Exact(vectors)
    path = place / f"{kind}-{sha256(index)[:8]}.faiss"
    return Approximate.open(path, vectors, index, queries())
