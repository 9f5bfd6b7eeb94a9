"""Encoded items of one kind, images or captions, that can be searched."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from simgrad.core.files import sha256
from simgrad.models import Encoded, RetrievalModel
from simgrad.search.approximate import AUTO, EXACT, Approximate, default_index
from simgrad.search.exact import Exact, Ranked, best


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
