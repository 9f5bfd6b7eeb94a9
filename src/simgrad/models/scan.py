"""SCAN: stacked cross attention between image regions and words.

Lee, Chen, Hua, Hu, He: Stacked cross attention for image-text matching, ECCV 2018. The published
figures average the similarities of a text-to-image and an image-to-text model.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from simgrad.core.spec import setting
from simgrad.models.base import Encoded, Inputs, ModelConfig, RetrievalModel, models
from simgrad.models.networks.attention import Attention, attend, attend_pairs
from simgrad.models.networks.layers import l2norm, valid, xavier_linear
from simgrad.models.networks.text import TextSettings, word_encoder


@dataclass(frozen=True)
class SetSettings(TextSettings):
    """Settings that SCAN and BFAN share."""

    small: ClassVar[dict[str, Any]] = {**ModelConfig.small, "text": "bigru"}

    text: str = setting("bigru", "text encoder", choices=("bigru", "bert"))
    memory_mib: int = setting(512, "memory for comparing all pairs, in MiB")


class SetModel(RetrievalModel):
    """Regions and words as sets of unit vectors: the encoders that SCAN and BFAN share."""

    embeds = False

    def __init__(self, config: SetSettings, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("regions")
        self.fc = xavier_linear(inputs.image_dimension, config.dimension)
        self.text = word_encoder(config, inputs.vocabulary_size, config.dimension)
        self.longest = getattr(self.text, "longest", None)

    def encode_images(self, images: Tensor) -> Encoded:
        return Encoded(tokens=l2norm(self.fc(images)))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        mask = valid(lengths, tokens.shape[1])
        words = l2norm(self.text(tokens, lengths))
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
        "lse", "how one similarity comes of many", choices=("lse", "mean", "sum", "max")
    )
    smooth: float = setting(9.0, "lambda 1: sharpness of the attention (i-t: 4)")
    sharpness: float = setting(6.0, "lambda 2: sharpness of lse (i-t: 5, on COCO 20)")

    def build(self, inputs: Inputs) -> "ScanModel":
        return ScanModel(self, inputs)


class ScanModel(SetModel):
    """SCAN."""

    config: Scan

    def __init__(self, config: Scan, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.how = Attention(config.smooth, aggregate=config.aggregate, sharpness=config.sharpness)

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        memory = self.config.memory_mib
        if self.config.direction == "t-i":
            return attend(images, captions, self.how, memory_mib=memory)
        return attend(captions, images, self.how, memory_mib=memory).T

    def pairwise(self, images: Encoded, captions: Encoded) -> Tensor:
        if self.config.direction == "t-i":
            return attend_pairs(images, captions, self.how)
        return attend_pairs(captions, images, self.how)
