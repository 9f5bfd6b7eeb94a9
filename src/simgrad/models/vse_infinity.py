"""VSE-infinity: learnt pooling of regions or grid cells, and of words.

Chen, Hu, Wu, Jiang, Wang: Learning the best pooling strategy for visual semantic embedding,
CVPR 2021. As published: `vse-infinity` on region features with BERT; `image=grid` on grid features
or pixels; `text=bigru` for the word GRU.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.models.base import (
    Encoded,
    Inputs,
    ModelConfig,
    RetrievalModel,
    TokenizerNeeds,
    models,
)
from simgrad.models.networks.backbones import Backbone, here
from simgrad.models.networks.layers import BiGruText, Tower, cast_once, l2norm, valid, xavier_linear
from simgrad.models.networks.text import TextSettings, bert_of
from simgrad.models.networks.vse_infinity import Gpo, change_words, keep_cells, keep_regions

_UNKNOWN_WORD = 3


@models.declare(
    "vse-infinity",
    paper="Chen et al., CVPR 2021",
    description="learnt pooling (GPO) of regions or grid cells and of words",
)
@dataclass(frozen=True)
class VseInfinity(TextSettings):
    small: ClassVar[dict[str, Any]] = {
        **ModelConfig.small, "text": "bigru", "finetune": False, "cells": 7, "size": 224
    }  # fmt: skip

    image: str = setting("region", "kind of image features", choices=("region", "grid"))
    text: str = setting("bert", "text encoder", choices=("bert", "bigru"))
    image_norm: bool = setting(True, "scale image vectors to unit length")
    text_norm: bool = setting(True, "scale caption vectors to unit length")
    augment: float = setting(0.2, "share of regions and words changed while training")
    backbone: str | None = setting(None, "image network for pictures; none: the data are features")
    weights: str | None = setting(None, "file or folder of the image network's weights")
    size: int = setting(512, "side of its pictures in pixels")
    cells: int = setting(16, "grid cells per side of a picture")
    finetune: bool = setting(True, "train the image network too")
    backbone_lr: float = setting(
        0.1, "learning rate of the image network, as a share of lr (WSL, BUTD: 0.01)"
    )

    def build(self, inputs: Inputs) -> "VseInfinityModel":
        return VseInfinityModel(self, inputs)

    @property
    def reads(self) -> str:
        return "regions" if self.backbone is None else "pixels"

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        """Words are hidden behind one of their own, as its code adds it to the vocabulary."""
        if self.text == "bert":
            return super().tokenizer_needs
        return TokenizerNeeds(added=("<mask>",))

    @property
    def trains_backbone(self) -> bool:
        return self.backbone is not None and self.finetune

    def without_downloads(self) -> "VseInfinity":
        network = self.backbone is not None and here(self.backbone, self.weights)
        kept = super().without_downloads()
        return dataclasses.replace(kept, backbone=self.backbone if network else None)


class ResidualMlp(nn.Module):
    """Two linear layers with a batch norm between, beside the linear layer on regions."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, outputs // 2)
        self.norm = nn.BatchNorm1d(outputs // 2)
        self.second = nn.Linear(outputs // 2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        n, k, _ = x.shape
        hidden = self.norm(self.first(x).flatten(0, 1))
        out: Tensor = self.second(F.relu(hidden)).view(n, k, -1)
        return out


class VseInfinityModel(RetrievalModel):
    """VSE-infinity."""

    config: VseInfinity

    def __init__(self, config: VseInfinity, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("regions", "pixels")
        self.embeds = config.image_norm and config.text_norm
        self.tower = None
        if inputs.images == "pixels":
            if config.backbone is None:
                raise InputError(
                    "model 'vse-infinity' is given pictures, but no network that reads them: name "
                    "one, as in vse-infinity(backbone=resnet152), or give it features of them "
                    "(`simgrad features DATA --grid 7`)."
                )
            self.tower = Tower(config.backbone, config.weights, finetune=config.finetune, keep=True)
            self.tower.body.size, self.tower.body.transform = config.size, "vse-infinity"
            self.sees(config.size, "vse-infinity")
        width = self.tower.grid_dimension if self.tower is not None else inputs.image_dimension
        self.grid = self.tower is not None or config.image == "grid"
        self.fc = xavier_linear(width, config.dimension)
        self.mlp = None if self.grid else ResidualMlp(width, config.dimension)
        self.image_pool = Gpo()
        self._build_text()
        self.text_pool = Gpo()

    def _build_text(self) -> None:
        config, inputs = self.config, self.inputs
        self.bert = self.words = self.linear = None
        if config.text == "bigru":
            self.words = BiGruText(
                inputs.vocabulary_size, config.word_dimension, config.dimension, config.gru_layers
            )
        else:
            self.bert = bert_of(config, inputs.vocabulary_size)
            self.longest = self.bert.settings.positions
            self.linear = nn.Linear(self.bert.settings.hidden, config.dimension)
        continues = torch.zeros(inputs.vocabulary_size, dtype=torch.bool)
        continues[list(inputs.continuations)] = True
        self.register_buffer("continues", continues, persistent=False)
        self.mask_token = _UNKNOWN_WORD if inputs.mask_token is None else inputs.mask_token

    def encode_images(self, images: Tensor) -> Encoded:
        if self.tower is not None:
            images = self.tower.grid(images, self.config.cells)
        images = cast_once(images)
        features = self.fc(images)
        if self.mlp is not None:
            features = features + self.mlp(images)
        mask = None
        if self.training and self.config.augment:
            drop = keep_cells if self.grid else keep_regions
            n, k, _ = features.shape
            mask = drop(n, k, self.config.augment, features.device)
        vectors = self.image_pool(features, mask)
        return Encoded(l2norm(vectors) if self.config.image_norm else vectors.float())

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        if self.training and self.config.augment:
            tokens, lengths = change_words(
                tokens,
                lengths,
                rate=self.config.augment,
                mask_token=self.mask_token,
                words=self.inputs.vocabulary_size,
                continues=self.get_buffer("continues") if self.inputs.continuations else None,
                whole=self.bert is not None,
            )
        mask = valid(lengths, tokens.shape[1])
        if self.bert is not None and self.linear is not None:
            features = self.linear(self.bert(tokens, mask))
        else:
            assert self.words is not None
            features = self.words(tokens, lengths)
        vectors = self.text_pool(features, mask)
        return Encoded(l2norm(vectors) if self.config.text_norm else vectors.float())

    def image_network(self) -> Tower | None:
        return self.tower

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        if self.tower is None or self.tower.finetune:
            return None
        return self.tower.body, self.config.cells

    def slow_parts(self) -> list[tuple[nn.Module, float]]:
        parts = ((self.bert, self.config.bert_lr), (self.tower, self.config.backbone_lr))
        return [(part, share) for part, share in parts if part is not None]
