"""Encoding a batch whole, or in pieces that fit into memory.

In pieces it is GradCache, the exact gradient of a large batch in the memory of a small one:
`integrations/gradcache.py` has its three steps.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from simgrad.data.batches import Batch
from simgrad.integrations.gradcache import Remembered
from simgrad.models.base import Encoded, RetrievalModel


class Encoder:
    """Encodes batches: `encode` one, take its loss, then `backward` from that."""

    def __init__(
        self,
        model: RetrievalModel,
        micro_batch: int | None,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.model, self.micro_batch, self.autocast = model, micro_batch, autocast
        # Of the batch in work, where it is in pieces: these, and what was encoded as the start of a
        # new graph.
        self._sides: list[tuple[Remembered[Encoded], Encoded]] = []

    def encode(self, batch: Batch) -> tuple[Encoded, Encoded]:
        """All images and all captions of the batch."""
        images, captions = len(batch.images), len(batch.tokens)

        def images_of(rows: slice) -> Encoded:
            with self.autocast():
                return self.model.encode_images(batch.images[rows])

        def captions_of(rows: slice) -> Encoded:
            with self.autocast():
                return self.model.encode_captions(batch.tokens[rows], batch.lengths[rows])

        if self.micro_batch is None or self.micro_batch >= max(images, captions):
            return images_of(slice(0, images)), captions_of(slice(0, captions))
        sides = [
            Remembered(encode, count, self.micro_batch, batch.images.device)
            for encode, count in ((images_of, images), (captions_of, captions))
        ]
        self._sides = [(side, _leaf(Encoded.cat(side.parts))) for side in sides]
        return self._sides[0][1], self._sides[1][1]

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss to the parameters."""
        loss.backward()  # type: ignore[no-untyped-call]
        sides, self._sides = self._sides, []
        for side, leaf in sides:
            for number, piece in enumerate(side.pieces):
                _send_back(side.again(number), leaf, piece)


def _leaf(encoded: Encoded) -> Encoded:
    parts = (encoded.vectors, encoded.tokens)
    vectors, tokens = (None if p is None else p.detach().requires_grad_() for p in parts)
    return Encoded(vectors, tokens, encoded.mask)


def _send_back(again: Encoded, leaf: Encoded, rows: slice) -> None:
    outputs, gradients = [], []
    for now, cached in ((again.vectors, leaf.vectors), (again.tokens, leaf.tokens)):
        if now is not None and cached is not None and cached.grad is not None:
            gradient = cached.grad[rows]
            # Pieces of sets may have been padded to a common length.
            outputs.append(now)
            gradients.append(gradient if now.dim() == 2 else gradient[:, : now.shape[1]])
    if outputs:
        torch.autograd.backward(outputs, gradients)
