"""VSRN: image regions reason about each other, then a GRU reads them into one vector.

Li, Zhang, Li, Li, Fu: Visual semantic reasoning for image-text matching, ICCV 2019.

The published code brings regions to unit length over the regions instead of the features
(`published_axis=true` does the same). On Flickr30k it skips the first of the two and adds a batch
norm after the GRU: `vsrn(batch_norm=true, region_norm=false)`. Its captioner, which has to
generate each caption from the regions, is `captioner=true`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from simgrad.core.spec import setting
from simgrad.models.base import CaptionBatch, Encoded, Inputs, ModelConfig, models, tokens_of
from simgrad.models.networks.layers import l2norm, xavier_linear
from simgrad.models.networks.recurrent import gru_state_at
from simgrad.models.networks.vsrn import Captioner, related
from simgrad.models.vsepp import VectorModel, VectorSettings


@models.declare(
    "vsrn",
    paper="Li et al., ICCV 2019",
    description="relation reasoning over regions, GRU over regions, GRU on words",
)
@dataclass(frozen=True)
class Vsrn(VectorSettings):
    small: ClassVar[dict[str, Any]] = {**ModelConfig.small, "dimension": 64, "text": "gru"}

    dimension: int = setting(2048, "size of the joint space")
    layers: int = setting(4, "relation layers")
    region_norm: bool = setting(True, "scale regions to unit length before the relation layers")
    batch_norm: bool = setting(False, "batch norm after the GRU over regions")
    published_axis: bool = setting(False, "normalise over regions, as the published code does")
    captioner: bool = setting(False, "also learn to generate the captions")
    captioner_dimension: int = setting(512, "size of the captioner's states")
    captioner_dropout: float = setting(0.2, "dropout on the captioner's inputs")

    def build(self, inputs: Inputs) -> "VsrnModel":
        return VsrnModel(self, inputs)


class Relations(nn.Module):
    """One relation layer: each region adds what its relations to all others tell.

    R = theta(v) phi(v)ᵀ / regions without a softmax; v + BN(W R g(v)), where the batch norm
    starts at zero, so that the layer starts as the identity.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.ask = nn.Linear(dimension, 3 * dimension)  # theta, phi and g in one product
        self.out = nn.Linear(dimension, dimension)
        self.norm = nn.BatchNorm1d(dimension)
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)

    def forward(self, regions: Tensor) -> Tensor:
        """(n, k, d) -> (n, k, d)"""
        update = related(regions, self.ask, self.out)
        normed: Tensor = self.norm(update.flatten(0, 1))
        return regions + normed.view_as(regions)


class VsrnModel(VectorModel):
    """VSRN."""

    config: Vsrn

    def __init__(self, config: Vsrn, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("regions")
        size = config.dimension
        self.fc = xavier_linear(inputs.image_dimension, size)
        self.relations = nn.Sequential(*(Relations(size) for _ in range(config.layers)))
        self.region_rnn = nn.GRU(size, size, batch_first=True)
        self.norm = nn.BatchNorm1d(size) if config.batch_norm else None
        self.add_text(whole=True)
        self.captioner = None
        self.auxiliary_sees = "pairs" if config.captioner else "nothing"
        if config.captioner:
            self.captioner = Captioner(
                size,
                inputs.vocabulary_size,
                hidden=config.captioner_dimension,
                word_dimension=config.word_dimension,
                dropout=config.captioner_dropout,
            )

    def encode_images(self, images: Tensor) -> Encoded:
        axis = 1 if self.config.published_axis else 2
        regions = self.fc(images)
        if self.config.region_norm:
            regions = l2norm(regions, axis)
        regions = l2norm(self.relations(regions), axis)
        last = torch.full((len(regions),), regions.shape[1] - 1, device=regions.device)
        vectors = gru_state_at(self.region_rnn, regions, last)
        if self.norm is not None:
            vectors = self.norm(vectors)
        # The captioner alone needs the regions again, and it is only ever trained.
        needed = self.captioner is not None and self.training
        return Encoded(self.image_vectors(vectors), tokens=regions if needed else None)

    def auxiliary_loss(
        self, images: Encoded, captions: Encoded, batch: CaptionBatch
    ) -> Tensor | None:
        """The captioner's loss: summed over words, averaged over captions."""
        if self.captioner is None or not self.training:
            return None
        regions = torch.index_select(tokens_of(images), 0, batch.image_of_caption)
        loss: Tensor = self.captioner(regions, batch.tokens, batch.lengths)
        return loss
