"""BFAN: cross attention in both directions that drops what does not matter.

Liu, Mao, Liu, Zhang, Wang, Zhang: Focus your attention: A bidirectional focal attention network
for image-text matching, ACM Multimedia 2019. Similarities lie in [-2, 2].
"""

from dataclasses import dataclass

from torch import Tensor

from simgrad.core.spec import setting
from simgrad.models.base import Encoded, Inputs, models
from simgrad.models.networks.cross_attention import CrossAttention, attend, attend_pairs
from simgrad.models.scan import SetModel, SetSettings


@models.declare(
    "bfan",
    paper="Liu et al., ACM Multimedia 2019",
    description="focal cross attention in both directions",
)
@dataclass(frozen=True)
class Bfan(SetSettings):
    focal: str = setting("equal", "how relevance is judged", choices=("equal", "prob"))
    smooth: float = setting(20.0, "lambda: sharpness of the attention")

    def build(self, inputs: Inputs) -> "BfanModel":
        return BfanModel(self, inputs)


class BfanModel(SetModel):
    """BFAN."""

    config: Bfan

    def __init__(self, config: Bfan, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.how = CrossAttention(config.smooth, focal=config.focal, unit=config.unit)

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        memory = self.config.memory_mib
        words_look = attend(images, captions, self.how, memory_mib=memory)
        regions_look = attend(captions, images, self.how, memory_mib=memory)
        return words_look + regions_look.T

    def pairwise(self, images: Encoded, captions: Encoded) -> Tensor:
        words_look = attend_pairs(images, captions, self.how)
        return words_look + attend_pairs(captions, images, self.how)
