"""VSE++: one linear layer on image features, a GRU on words, cosine similarity.

Faghri, Fleet, Kiros, Fidler: VSE++: Improving visual-semantic embeddings with hard negatives,
BMVC 2018. With `measure=order` it is the order embedding of Vendrov et al., ICLR 2016.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from simgrad.core.spec import setting
from simgrad.models.base import Encoded, Inputs, ModelConfig, Usual, models, vectors_of
from simgrad.models.networks.backbones import Backbone, here
from simgrad.models.networks.layers import Tower, l2norm, xavier_linear
from simgrad.models.networks.many import ManyVse
from simgrad.models.networks.text import TextModel, TextSettings

# Order similarities compare every dimension of every pair: this many numbers at a time.
_BLOCK = 1 << 24


@dataclass(frozen=True)
class VectorSettings(TextSettings):
    """Settings of a model that compares one vector an image with one vector a caption."""

    measure: str = setting("cosine", "similarity of two vectors", choices=("cosine", "order"))
    absolute: bool = setting(False, "take absolute values of both vectors (order embeddings)")
    image_norm: bool = setting(True, "scale image vectors to unit length")


class VectorModel(TextModel):
    """How VSE++ and VSRN end: vectors of unit length, compared by cosine or by order."""

    config: VectorSettings

    def __init__(self, config: VectorSettings, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.embeds = config.measure == "cosine" and config.image_norm

    def image_vectors(self, vectors: Tensor) -> Tensor:
        """(n, dimension), ready to be compared."""
        vectors = l2norm(vectors) if self.config.image_norm else vectors.float()
        return vectors.abs() if self.config.absolute else vectors

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        vectors = l2norm(self.text(tokens, lengths))
        return Encoded(vectors.abs() if self.config.absolute else vectors)

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        if self.config.measure == "cosine":
            return super().similarities(images, captions)
        return order_similarities(vectors_of(images), vectors_of(captions))

    def pairwise(self, images: Encoded, captions: Encoded) -> Tensor:
        if self.config.measure == "cosine":
            return super().pairwise(images, captions)
        above = (vectors_of(captions) - vectors_of(images)).clamp_min(0)
        return -above.square().sum(-1).clamp_min(1e-16).sqrt()


@models.declare(
    "vse++",
    paper="Faghri et al., BMVC 2018",
    description="linear layer on image features, GRU on words",
)
@dataclass(frozen=True)
class VsePlusPlus(VectorSettings):
    usual = Usual("focused-deviance", 2e-3)  # results/generalise
    small: ClassVar[dict[str, Any]] = {**ModelConfig.small, "text": "gru", "finetune": False}

    feature_norm: bool = setting(True, "scale given features to unit length, as published")
    backbone: str = setting("resnet50", "image network, if the data are pictures")
    weights: str | None = setting(None, "file or folder of the image network's weights")
    finetune: bool = setting(False, "train the image network too")
    keep_statistics: bool = setting(False, "keep its batch-norm statistics while fine-tuning")

    def build(self, inputs: Inputs) -> "VseModel":
        return VseModel(self, inputs)

    @property
    def reads(self) -> str:
        """Pictures where it trains their network; else features of it will do."""
        return "pixels" if self.finetune else "global"

    @property
    def trains_backbone(self) -> bool:
        return self.finetune

    @property
    def groups(self) -> bool:
        """One linear layer and one GRU, compared by cosine; a subclass may do anything."""
        plain = type(self) is VsePlusPlus and self.text == "gru" and self.gru_layers == 1
        plain = plain and not self.finetune and not self.absolute
        return plain and self.measure == "cosine" and self.image_norm

    def without_downloads(self) -> "VsePlusPlus":
        kept = super().without_downloads()
        if not self.finetune or here(self.backbone, self.weights):
            return kept
        return dataclasses.replace(kept, finetune=False)


class VseModel(VectorModel):
    """The encoders of VSE++."""

    config: VsePlusPlus

    def __init__(self, config: VsePlusPlus, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("features", "pixels")
        self.tower = None
        if inputs.images == "pixels":
            self.tower = Tower(
                config.backbone,
                config.weights,
                finetune=config.finetune,
                keep=config.keep_statistics,
            )
            self.sees(self.tower.body.size, self.tower.body.transform)
        width = self.tower.dimension if self.tower is not None else inputs.image_dimension
        self.fc = xavier_linear(width, config.dimension)
        self.add_text(whole=True)

    def encode_images(self, images: Tensor) -> Encoded:
        if self.tower is not None:
            images = l2norm(self.tower.pooled(images))
        elif self.config.feature_norm:
            images = l2norm(images)
        return Encoded(self.image_vectors(self.fc(images)))

    def together(self, *, half: bool) -> ManyVse | None:
        if type(self) is not VseModel or not self.config.groups:
            return None
        norm = self.tower is not None or self.config.feature_norm
        return ManyVse(half=half, feature_norm=norm)

    def image_network(self) -> Tower | None:
        return self.tower

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        if self.tower is None or self.tower.finetune:
            return None
        return self.tower.body, None


def order_similarities(images: Tensor, captions: Tensor) -> Tensor:
    """-||max(0, caption - image)||: zero where the caption is more general in every dimension."""
    rows = max(1, _BLOCK // max(1, captions.numel()))
    blocks = []
    for start in range(0, len(images), rows):
        above = (captions[None] - images[start : start + rows, None]).clamp_min(0)
        # The floor keeps the gradient finite where nothing is violated.
        blocks.append(-above.square().sum(-1).clamp_min(1e-16).sqrt())
    return torch.cat(blocks) if blocks else images.new_zeros(0, len(captions))
