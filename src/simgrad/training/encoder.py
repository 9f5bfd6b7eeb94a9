"""Encode a batch, whole or in pieces, and send the gradient back to the encoders.

In pieces it is GradCache: the exact gradient of a large batch in the memory of a small one (Gao,
Zhang, Han, Callan: Scaling deep contrastive learning batch size under memory limited setup,
RepL4NLP 2021).
1. Encode the batch piece by piece without keeping what the encoders computed.
2. Take the loss of all pieces together, and its gradient for what was encoded.
3. Encode each piece again, this time keeping it, and send that gradient back through it.
Each piece is encoded with the same random numbers both times, so dropout does not change between.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simgrad.core.devices import random_state, set_random_state
from simgrad.data.batches import Batch
from simgrad.models.base import Encoded, RetrievalModel

Encode = Callable[[slice], Encoded]


@dataclass
class _Side:
    """The images, or the captions, of a batch in pieces."""

    encode: Encode
    pieces: list[slice]
    random: list[list[Tensor]]  # the generators' states before each piece
    leaf: Encoded  # what was encoded, as the start of a new graph
    device: torch.device


class Encoder:
    """Encodes batches: `encode` one, take its loss, then `backward` from that."""

    def __init__(
        self,
        model: RetrievalModel,
        micro_batch: int | None,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.model, self.micro_batch, self.autocast = model, micro_batch, autocast
        self._sides: list[_Side] = []  # of the batch in work, where it is in pieces

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
        self._sides = [
            self._in_pieces(images_of, images, batch),
            self._in_pieces(captions_of, captions, batch),
        ]
        return self._sides[0].leaf, self._sides[1].leaf

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss to the parameters."""
        loss.backward()  # type: ignore[no-untyped-call]
        sides, self._sides = self._sides, []
        for side in sides:
            for piece, random in zip(side.pieces, side.random, strict=True):
                with _same_random(random, side.device):
                    again = side.encode(piece)
                _send_back(again, side.leaf, piece)

    def _in_pieces(self, encode: Encode, count: int, batch: Batch) -> _Side:
        assert self.micro_batch is not None
        device, pieces = batch.images.device, list(_pieces(count, self.micro_batch))
        random, parts = [], []
        for piece in pieces:
            random.append(random_state(device))
            with torch.no_grad():
                parts.append(encode(piece))
        return _Side(encode, pieces, random, _leaf(Encoded.cat(parts)), device)


def _pieces(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


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


@contextmanager
def _same_random(state: list[Tensor], device: torch.device) -> Iterator[None]:
    """As it was when the piece was encoded first; afterwards as if nothing had been drawn."""
    before = random_state(device)
    set_random_state(state, device)
    try:
        yield
    finally:
        set_random_state(before, device)
