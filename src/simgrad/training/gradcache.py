"""GradCache: the exact gradient of a large batch, encoded in pieces.

Gao, Zhang, Han, Callan: Scaling deep contrastive learning batch size under memory limited setup,
RepL4NLP 2021.
1. Encode the batch piece by piece without keeping what the encoders computed.
2. Take the loss of all pieces together, and its gradient for what was encoded.
3. Encode each piece again, this time keeping it, and send that gradient back through it.
Each piece is encoded with the same random numbers both times, so dropout does not change between.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from simgrad.data.batches import Batch
from simgrad.models.base import Encoded, RetrievalModel
from simgrad.training import distributed

LossOf = Callable[[Encoded, Encoded], Tensor]
Encode = Callable[[slice], Encoded]


def backward(
    model: RetrievalModel,
    batch: Batch,
    loss_of: LossOf,
    micro_batch: int | None,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> None:
    """Add the gradient of `loss_of` the encoded batch to the parameters."""

    def images_of(rows: slice) -> Encoded:
        some = _at_least_one(rows)
        with autocast():
            return model.encode_images(batch.images[some]).select(_all_of(rows))

    def captions_of(rows: slice) -> Encoded:
        some = _at_least_one(rows)
        with autocast():
            encoded = model.encode_captions(batch.tokens[some], batch.lengths[some])
        return encoded.select(_all_of(rows))

    def send_back(value: Tensor) -> None:
        part = value / distributed.size() if distributed.size() > 1 else value
        part.backward()  # type: ignore[no-untyped-call]

    images, captions = len(batch.images), len(batch.tokens)
    mine = distributed.share(images), distributed.share(captions)
    if micro_batch is None or micro_batch >= max(images, captions):
        value = loss_of(
            distributed.gather(images_of(mine[0]), images),
            distributed.gather(captions_of(mine[1]), captions),
        )
        send_back(value)
        return

    devices = [batch.images.device] if batch.images.is_cuda else []
    encoders: tuple[Encode, Encode] = (images_of, captions_of)
    pieces = [list(_pieces(part, micro_batch)) for part in mine]
    states, leaves = [], []
    for encode, rows in zip(encoders, pieces, strict=True):
        parts = []
        for piece in rows:
            states.append(_random_state(devices))
            with torch.no_grad():
                parts.append(encode(piece))
        leaves.append(_leaf(Encoded.cat(parts)))
    send_back(
        loss_of(distributed.gather(leaves[0], images), distributed.gather(leaves[1], captions))
    )
    remaining = iter(states)
    for encode, rows, leaf in zip(encoders, pieces, leaves, strict=True):
        for piece in rows:
            with _replay(next(remaining), devices):
                again = encode(piece)
            local = slice(piece.start - rows[0].start, piece.stop - rows[0].start)
            _send_back(again, leaf, local)


def _pieces(rows: slice, size: int) -> Iterator[slice]:
    for start in range(rows.start, max(rows.stop, rows.start + 1), size):
        yield slice(start, min(start + size, rows.stop))


def _at_least_one(rows: slice) -> slice:
    """A process may have no share of a small batch, but layers cannot take nothing."""
    return slice(rows.start, max(rows.stop, rows.start + 1))


def _all_of(rows: slice) -> slice:
    """The same rows, of what was encoded of them alone."""
    return slice(0, rows.stop - rows.start)


def _leaf(encoded: Encoded) -> Encoded:
    """What was encoded, as the start of a new graph."""
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


def _random_state(devices: list[torch.device]) -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in devices)]


@contextmanager
def _replay(state: list[Tensor], devices: list[torch.device]) -> Iterator[None]:
    with torch.random.fork_rng(devices):
        torch.set_rng_state(state[0])
        for device, saved in zip(devices, state[1:], strict=True):
            torch.cuda.set_rng_state(saved, device)
        yield
