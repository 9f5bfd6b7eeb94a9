"""Encoded items of one kind, images or captions, that can be searched."""

from functools import cached_property
from pathlib import Path

import torch

from simgrad.models import Encoded, RetrievalModel
from simgrad.search.approximate import LARGE, Approximate, available
from simgrad.search.exact import Exact, Ranked, best


class Gallery:
    """Items of one kind; `index` is where an approximate index of many of them is kept."""

    def __init__(
        self, model: RetrievalModel, items: Encoded, kind: str, index: Path | None = None
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
