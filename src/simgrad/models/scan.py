"""SCAN: stacked cross attention between image regions and words.

Lee, Chen, Hua, Hu, He: Stacked cross attention for image-text matching, ECCV 2018. The published
figures average the similarities of a text-to-image and an image-to-text model. Its own code reads
words with a one-way GRU unless told otherwise (`text=gru`); the paper's models are two-way.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from simgrad.core.spec import setting
from simgrad.models.base import Encoded, Inputs, ModelConfig, models
from simgrad.models.networks.cross_attention import RAW_NORMS, CrossAttention, attend, attend_pairs
from simgrad.models.networks.layers import l2norm, valid, xavier_linear
from simgrad.models.networks.text import TextModel, TextSettings


@dataclass(frozen=True)
class SetSettings(TextSettings):
    """Settings that SCAN and BFAN share."""

    small: ClassVar[dict[str, Any]] = {**ModelConfig.small, "text": "bigru"}

    text: str = setting("bigru", "text encoder", choices=("bigru", "gru", "bert"))
    image_norm: bool = setting(True, "scale regions to unit length")
    text_norm: bool = setting(True, "scale words to unit length")
    memory_mib: int = setting(512, "memory for comparing all pairs, in MiB")

    @property
    def unit(self) -> bool:
        """Whether everything it compares has unit length."""
        return self.image_norm and self.text_norm


class SetModel(TextModel):
    """Regions and words as sets of vectors: the encoders that SCAN and BFAN share."""

    config: SetSettings
    embeds = False

    def __init__(self, config: SetSettings, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("regions")
        self.fc = xavier_linear(inputs.image_dimension, config.dimension)
        self.add_text(whole=False)

    def encode_images(self, images: Tensor) -> Encoded:
        regions = self.fc(images)
        return Encoded(tokens=l2norm(regions) if self.config.image_norm else regions.float())

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        mask = valid(lengths, tokens.shape[1])
        words = self.text(tokens, lengths)
        words = l2norm(words) if self.config.text_norm else words.float()
        return Encoded(tokens=words * mask[:, :, None], mask=mask)


@models.declare(
    "scan",
    paper="Lee et al., ECCV 2018",
    description="stacked cross attention between regions and words",
)
@dataclass(frozen=True)
class Scan(SetSettings):
    direction: str = setting(
        "t-i", "words look at regions (t-i) or regions at words (i-t)", choices=("t-i", "i-t")
    )
    aggregate: str = setting(
        "lse", "how many similarities become one", choices=("lse", "mean", "sum", "max")
    )
    smooth: float = setting(9.0, "lambda 1: sharpness of the attention (i-t: 4)")
    sharpness: float = setting(6.0, "lambda 2: sharpness of lse (i-t: 5, on COCO 20)")
    raw_norm: str = setting(
        "clipped_l2norm", "normalisation of the products before the attention", choices=RAW_NORMS
    )

    def build(self, inputs: Inputs) -> "ScanModel":
        return ScanModel(self, inputs)


class ScanModel(SetModel):
    """SCAN."""

    config: Scan

    def __init__(self, config: Scan, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.how = CrossAttention(
            config.smooth,
            config.raw_norm,
            aggregate=config.aggregate,
            sharpness=config.sharpness,
            unit=config.unit,
        )

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        memory = self.config.memory_mib
        if self.config.direction == "t-i":
            return attend(images, captions, self.how, memory_mib=memory)
        return attend(captions, images, self.how, memory_mib=memory).T

    def pairwise(self, images: Encoded, captions: Encoded) -> Tensor:
        if self.config.direction == "t-i":
            return attend_pairs(images, captions, self.how)
        return attend_pairs(captions, images, self.how)
