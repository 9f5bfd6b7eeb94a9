"""What goes into a model, and what comes out.

`Inputs` says what the data gives, so that a model's first layers fit. `TokenizerNeeds` says what a
model wants its captions to be: words or pieces of words, of a pretrained network or of its own.
`Encoded` are images or captions as a model gives them: vectors, sets of vectors, or both.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.subwords import Subwords, WordPieces, read_pieces
from simgrad.data.vocabulary import Tokenizer, Vocabulary, read_published
from simgrad.models.networks.parts import WITH_TOKENIZER, pretrained_folder
from simgrad.models.networks.processing import own_tokenizer

ImageKind = Literal["features", "regions", "pixels"]
_KINDS = ("features", "regions", "pixels")


@dataclass(frozen=True)
class Inputs:
    """What a model is fed, so that its first layers fit.

    Examples:
        >>> inputs = simgrad.models.Inputs("regions", (36, 2048), vocabulary_size=100)
        >>> inputs.image_dimension
        2048
    """

    images: ImageKind  # one vector, a set of vectors, or a picture
    # (d,), (regions, d) or (3, height, width); which size of picture, the model says.
    image_shape: tuple[int, ...]
    vocabulary_size: int
    mask_token: int | None = None  # stands for a hidden word
    continuations: tuple[int, ...] = ()  # word pieces that continue a word
    caption_dimension: int = 0  # of caption vectors that the data bring; 0: they bring none

    @property
    def image_dimension(self) -> int:
        """Width of the precomputed features."""
        return self.image_shape[-1]

    @classmethod
    def of(
        cls,
        images: ImageKind,
        image_shape: tuple[int, ...],
        tokenizer: Tokenizer,
        caption_dimension: int = 0,
    ) -> "Inputs":
        """Inputs for the captions of a tokenizer."""
        size, mask, more = len(tokenizer), tokenizer.mask, tokenizer.continuations
        return cls(images, tuple(image_shape), size, mask, more, caption_dimension)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Inputs":
        if values.get("images") not in _KINDS:
            raise InputError(f"'inputs.images' is one of {', '.join(_KINDS)}.")
        try:
            return cls(
                images=values["images"],
                image_shape=tuple(int(n) for n in values["image_shape"]),
                vocabulary_size=int(values["vocabulary_size"]),
                mask_token=values.get("mask_token"),
                continuations=tuple(int(n) for n in values.get("continuations", ())),
                caption_dimension=int(values.get("caption_dimension", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"'inputs' cannot be read ({error!r}).") from None


@dataclass(frozen=True)
class Scale:
    """What similarities are multiplied by, and what is added to them."""

    scale: float
    bias: float = 0.0


@dataclass(frozen=True)
class TokenizerNeeds:
    """What a model wants its captions to be; equal needs can share a tokenizer."""

    pieces: bool = False  # pieces of words rather than words
    # The setting that names a pretrained text network and what it names: a folder, or a name on
    # the hub. Captions need that network's own tokenizer.
    network: tuple[str, str] | None = None
    added: tuple[str, ...] = ()  # words beside those of the captions, such as <mask>
    by_transformers: bool = False  # as transformers' own class for that network cuts captions
    # What is done to a caption before it is cut: a normalizer of `tokenizers`, in its own JSON.
    cleaning: str | None = None

    def tokenizer(
        self, captions: Callable[[], list[str]], vocabulary: str | None, min_count: int
    ) -> Tokenizer:
        """A tokenizer: of a file, of the network, or made from captions."""
        if vocabulary is not None:
            return self.read(vocabulary)
        if not self.pieces:
            return self._with_added(Vocabulary.build(captions(), min_count=min_count))
        if self.network is None:
            return self._with_cleaning(WordPieces.build(captions()))
        option, source = self.network
        folder = pretrained_folder(source, option, WITH_TOKENIZER)
        return own_tokenizer(folder) if self.by_transformers else self.read(folder)

    def read(self, path: str | Path) -> Tokenizer:
        """The tokenizer of a file or folder."""
        if self.pieces:
            return self._with_cleaning(read_pieces(path))
        return self._with_added(read_published(path))

    def _with_added(self, vocabulary: Vocabulary) -> Vocabulary:
        more = [word for word in self.added if word not in vocabulary]
        return Vocabulary([*vocabulary.words, *more]) if more else vocabulary

    def _with_cleaning(self, pieces: WordPieces | Subwords) -> WordPieces | Subwords:
        """Cleaning becomes the tokenizer's own first step, so it is saved with it."""
        if self.cleaning is None:
            return pieces
        told = pieces.to_json()
        before = told["tokenizer"].get("normalizer")
        steps = [json.loads(self.cleaning), *([before] if before else [])]
        told["tokenizer"]["normalizer"] = {"type": "Sequence", "normalizers": steps}
        return type(pieces).from_json(told)


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
