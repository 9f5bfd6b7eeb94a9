"""Images or captions as a model encodes them: vectors, sets of vectors, or both."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simgrad.core.errors import InputError


@dataclass
class Encoded:
    """Encoded images or captions: vectors, sets of vectors, or both.

    Examples:
        >>> images = simgrad.models.Encoded(vectors=torch.randn(4, 8))
        >>> len(images.select(torch.tensor([0, 2])))
        2
    """

    vectors: Tensor | None = None  # (n, d), unit length where the model embeds
    tokens: Tensor | None = None  # (n, length, d)
    mask: Tensor | None = None  # (n, length), true = real; None: all are

    def __len__(self) -> int:
        part = self.vectors if self.vectors is not None else self.tokens
        return 0 if part is None else len(part)

    def select(self, rows: Tensor | slice) -> "Encoded":
        """Some of the items, in the order given."""
        return Encoded(*(None if part is None else part[rows] for part in self._parts()))

    def to(self, device: torch.device | str) -> "Encoded":
        return Encoded(*(None if part is None else part.to(device) for part in self._parts()))

    def detach(self) -> "Encoded":
        return Encoded(*(None if part is None else part.detach() for part in self._parts()))

    def _parts(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.vectors, self.tokens, self.mask

    @staticmethod
    def cat(pieces: Sequence["Encoded"]) -> "Encoded":
        """Pieces one after another; sets of different lengths are padded and masked."""
        vectors = [piece.vectors for piece in pieces if piece.vectors is not None]
        tokens = [piece.tokens for piece in pieces if piece.tokens is not None]
        length = max((part.shape[1] for part in tokens), default=0)
        ragged = any(part.shape[1] != length for part in tokens)
        masks = []
        if tokens and (ragged or any(piece.mask is not None for piece in pieces)):
            masks = [_pad(piece.real(), length) for piece in pieces]
        return Encoded(
            torch.cat(vectors) if vectors else None,
            torch.cat([_pad(part, length) for part in tokens]) if tokens else None,
            torch.cat(masks) if masks else None,
        )

    def real(self) -> Tensor:
        """The mask, made where there is none."""
        if self.mask is not None:
            return self.mask
        if self.tokens is None:
            raise InputError("these items are single vectors: they have no set to mask.")
        return self.tokens.new_ones(self.tokens.shape[:2], dtype=torch.bool)


def _pad(part: Tensor, length: int) -> Tensor:
    short = length - part.shape[1]
    return F.pad(part, [0, 0] * (part.dim() - 2) + [0, short]) if short else part


def vectors_of(encoded: Encoded) -> Tensor:
    if encoded.vectors is None:
        raise InputError("these items are sets without a vector; ask the model for similarities.")
    return encoded.vectors


def tokens_of(encoded: Encoded) -> Tensor:
    if encoded.tokens is None:
        raise InputError("these items are single vectors, but the model compares sets.")
    return encoded.tokens
