"""What every model is to the rest of simgrad: a batch goes in, similarities come out.

A model declares its settings as a dataclass (`vse++(dimension=1024)` is its spec), and encodes
images and captions separately. What it encodes them to is its own business: one vector each
(`embeds` is true, similarities are plain products), or sets of regions and words that it
compares by attention. Objectives, evaluation and mining only ever ask for `similarities`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from simgrad.core.errors import InputError
from simgrad.core.spec import Registry, print_spec
from simgrad.models.networks.backbones import Backbone
from simgrad.models.networks.layers import Tower

ImageKind = Literal["features", "regions", "pixels"]


@dataclass(frozen=True)
class Inputs:
    """What a model is fed, so that its first layers fit."""

    images: ImageKind  # one vector, a set of vectors, or a picture
    # (d,), (regions, d) or (3, height, width); which size of picture, the model says.
    image_shape: tuple[int, ...]
    vocabulary_size: int
    mask_token: int | None = None  # stands for a hidden word; without one, the unknown word does
    continuations: tuple[int, ...] = ()  # word pieces that continue a word

    @property
    def image_dimension(self) -> int:
        """Width of the precomputed features."""
        return self.image_shape[-1]

    @classmethod
    def of(cls, images: ImageKind, image_shape: tuple[int, ...], tokenizer: Any) -> "Inputs":
        """Inputs for the captions of a tokenizer."""
        described = tokenizer.to_json().get("tokenizer", {}).get("model", {})
        pieces = described.get("vocab", {}) if described.get("type") == "WordPiece" else {}
        continuations = sorted(i for piece, i in pieces.items() if piece.startswith("##"))
        mask = getattr(tokenizer, "mask", None)
        return cls(images, tuple(image_shape), len(tokenizer), mask, tuple(continuations))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Inputs":
        kinds = ("features", "regions", "pixels")
        if values.get("images") not in kinds:
            raise InputError(f"'inputs.images' is one of {', '.join(kinds)}.")
        try:
            return cls(
                images=values["images"],
                image_shape=tuple(int(n) for n in values["image_shape"]),
                vocabulary_size=int(values["vocabulary_size"]),
                mask_token=values.get("mask_token"),
                continuations=tuple(int(n) for n in values.get("continuations", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"'inputs' cannot be read ({error!r}).") from None


@dataclass
class Encoded:
    """Encoded images or captions: vectors, sets of vectors, or both."""

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


class CaptionBatch(Protocol):
    """The part of a training batch that auxiliary losses need."""

    @property
    def tokens(self) -> Tensor: ...  # (m, L)

    @property
    def lengths(self) -> Tensor: ...  # (m,)

    @property
    def image_of_caption(self) -> Tensor: ...  # (m,)


@dataclass(frozen=True)
class ModelConfig:
    """Settings of a declared model; `str()` is the spec that parses back."""

    name: ClassVar[str]
    # Settings of a version that a laptop can train, where the model has them.
    small: ClassVar[dict[str, Any]] = {"dimension": 128, "word_dimension": 64}

    def __str__(self) -> str:
        return print_spec(self)

    def build(self, inputs: Inputs) -> "RetrievalModel":
        raise NotImplementedError

    @property
    def reads(self) -> str:
        """What it wants to be fed: global (one vector an image), regions or pixels."""
        return "regions"

    @property
    def pieces(self) -> bool:
        """Whether it reads pieces of words rather than words."""
        return False

    @property
    def text_part(self) -> tuple[str, str] | None:
        """The setting that names a pretrained text network, and the folder or hub name it gives:
        captions need that network's tokenizer."""
        return None

    def offline(self) -> "ModelConfig":
        """The same model without those pretrained parts that would have to be fetched."""
        return self

    def narrow(self) -> "ModelConfig":
        """The same model, small and untrained."""
        known = {field.name for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{k: v for k, v in self.small.items() if k in known})


models: Registry[ModelConfig] = Registry("model", "simgrad train --help")


class RetrievalModel(nn.Module):
    """Images and captions -> similarities."""

    embeds = True  # similarities are products of unit vectors
    transform = "vse++"  # how pictures are cut for it, of simgrad.data.transforms
    longest: int | None = None  # most tokens of a caption that it can read

    def __init__(self, config: ModelConfig, inputs: Inputs) -> None:
        super().__init__()
        self.config = config
        self.inputs = inputs

    def encode_images(self, images: Tensor) -> Encoded:
        raise NotImplementedError

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        raise NotImplementedError

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """(images, captions), in float32 whatever the encoders run in."""
        image, caption = vectors_of(images), vectors_of(captions)
        with torch.autocast(image.device.type, enabled=False):
            return image.float() @ caption.float().T

    def pairwise(self, images: Encoded, captions: Encoded) -> Tensor:
        """(n,): image k with caption k alone."""
        return (vectors_of(images) * vectors_of(captions)).sum(1)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """One batch to its similarities, (images, captions)."""
        return self.similarities(self.encode_images(images), self.encode_captions(tokens, lengths))

    def auxiliary_loss(
        self, images: Encoded, captions: Encoded, batch: CaptionBatch
    ) -> Tensor | None:
        """A loss of the model's own beside the objective, or None."""
        return None

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """What the optimiser trains, and how fast; a BERT in place of a GRU goes slowly."""
        named = [(name.startswith("text.bert."), p) for name, p in self.named_parameters()]
        groups = []
        for slow, share in ((False, 1.0), (True, getattr(self.config, "bert_lr", 1.0))):
            parameters = [p for kind, p in named if kind == slow and p.requires_grad]
            groups += [{"params": parameters, "lr": lr * share}] if parameters else []
        return groups

    def set_backbone(self, trained: bool) -> None:
        """Thaw or freeze its image network, where its settings allow that to be trained."""
        if not getattr(self.config, "finetune", False):
            return
        for module in self.modules():
            if isinstance(module, Tower) and module.finetune != trained:
                module.finetune = trained
                module.requires_grad_(trained)

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        """A frozen image network and its grid cells a side (None: one vector an image), where
        `encode_images` takes what it makes of pictures as well as the pictures themselves."""
        return None

    def has_batch_norms(self) -> bool:
        """Whether it may mix the images of a batch once it is trained."""
        return any(isinstance(part, _BatchNorm) for part in self.modules())

    def mixes_images(self) -> bool:
        """Whether what it makes of an image depends on the others of the batch just now: it does
        in batch norms that are training."""
        return any(isinstance(part, _BatchNorm) and part.training for part in self.modules())

    def needs(self, *kinds: ImageKind) -> None:
        """Refuse images of a kind this model cannot read."""
        given = self.inputs.images
        if given in kinds:
            return
        grid = " --grid 7" if "regions" in kinds else ""
        hint = f" `simgrad features DATA{grid}` makes what it reads." if given == "pixels" else ""
        shape = "" if given == "pixels" else f" of shape {self.inputs.image_shape}"
        raise InputError(
            f"model '{self.config.name}' reads {' or '.join(kinds)}, but the data gives "
            f"{given}{shape}.{hint}"
        )

    def sees(self, size: int, transform: str) -> None:
        """Note which pictures it was made for: pixels a side, and how they are cut."""
        self.inputs = dataclasses.replace(self.inputs, image_shape=(3, size, size))
        self.transform = transform


def vectors_of(encoded: Encoded) -> Tensor:
    if encoded.vectors is None:
        raise InputError("these items are sets without a vector; ask the model for similarities.")
    return encoded.vectors


def tokens_of(encoded: Encoded) -> Tensor:
    if encoded.tokens is None:
        raise InputError("these items are single vectors, but the model compares sets.")
    return encoded.tokens


def build(spec: str | ModelConfig, inputs: Inputs) -> RetrievalModel:
    """`build("vse++(dimension=256)", Inputs("features", (1280,), 3388))`"""
    config = models.parse(spec) if isinstance(spec, str) else spec
    try:
        return config.build(inputs)
    except InputError:
        raise
    except (ValueError, RuntimeError, MemoryError, ZeroDivisionError, OverflowError) as error:
        # Sizes that no layer can have, or no memory can hold.
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else "no memory"
        raise InputError(f"model '{config}' cannot be built: {reason}.") from None
