"""A head on each of two networks: the frame of `light` and `towers`.

What the networks are, and which of them learn, is for the models to say.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.base import Encoded, Inputs, ModelConfig, RetrievalModel, TokenizerNeeds
from simgrad.models.networks import parts
from simgrad.models.networks.backbones import Backbone, backbone
from simgrad.models.networks.layers import l2norm
from simgrad.models.networks.sentences import POOLINGS, packaged, text_source
from simgrad.models.published.towers import exports_as_pair, write_pair, write_pair_modules


@dataclass(frozen=True)
class HeadSettings(ModelConfig):
    """Settings of a model that puts a head on each of two networks."""

    image: str = setting(
        "efficientnet-lite0", "image network: a name, transformers:SOURCE, timm:NAME"
    )
    text: str | None = setting(None, "what reads captions")
    pooling: str = setting(
        "auto",
        "how the text network's states become one vector; auto: as its folder says",
        choices=POOLINGS,
    )
    dimension: int = setting(512, "size of the joint space")
    hidden: int = setting(0, "width of a hidden layer in the projections; 0: they are linear")

    def require_sense(self) -> None:
        """Refuse settings that mean nothing beside the others."""

    def lacks_text(self) -> bool:
        """Whether its text network would have to be fetched."""
        return self.text is not None and not (packaged(self.text) or parts.here(self.text))

    @property
    def network_tokenizer(self) -> TokenizerNeeds:
        """That of the text network."""
        assert self.text is not None
        return TokenizerNeeds(True, ("text", text_source(self.text)), by_transformers=True)


class HeadsModel(RetrievalModel):
    """Two networks, which may be locked, and a head on each."""

    config: HeadSettings
    linear: type[nn.Linear] = nn.Linear  # what heads are made of

    def __init__(self, config: HeadSettings, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("features", "pixels")
        config.require_sense()
        self.image: Backbone | None = None
        if inputs.images == "pixels":
            self.image = backbone(config.image)
            self.sees(self.image.size, self.image.transform)
        self.text = self.text_network()
        self.longest = self.text.longest
        self.freeze()
        width = inputs.image_dimension if self.image is None else self.image.dimension
        self.image_projection = self._head(width)
        self.text_projection = self._head(self.text.dimension)

    def _head(self, width: int) -> nn.Module:
        hidden, dimension = self.config.hidden, self.config.dimension
        if not hidden:
            return self.linear(width, dimension, bias=False)
        first, last = self.linear(width, hidden), self.linear(hidden, dimension)
        return nn.Sequential(first, nn.GELU(), last)

    def text_network(self) -> Any:
        """A module with `dimension` and `longest` that makes one vector of a caption."""
        raise NotImplementedError

    def freeze(self) -> None:
        """Let exactly what should learn have a gradient."""
        raise NotImplementedError

    def heads(self) -> list[nn.Parameter]:
        """What is new."""
        return [*self.image_projection.parameters(), *self.text_projection.parameters()]

    def encode_images(self, images: Tensor) -> Encoded:
        if self.image is not None and images.dim() != 2:
            images = self.image.pooled(images)
        return Encoded(l2norm(self.image_projection(self.read(images))))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        made = tokens.is_floating_point()
        vectors = tokens if made else self.text(tokens, lengths)
        return Encoded(l2norm(self.text_projection(self.read(vectors))))

    def read(self, vectors: Tensor) -> Tensor:
        """Vectors of a network as a head reads them."""
        return l2norm(vectors)  # networks differ a thousandfold in how long their vectors are

    def has_batch_norms(self) -> bool:
        """None that would see a batch: they keep their statistics."""
        return False

    def formats(self) -> tuple[str, ...]:
        pair = () if exports_as_pair(self) else ("transformers", "sentence-transformers")
        return (*pair, "onnx")

    def export(
        self, format: str, folder: Path, tokenizer: Tokenizer, *, adapter: bool = False
    ) -> None:
        if adapter:
            raise InputError(
                f"model '{self.config}': its projections are new, so a LoRA adapter is not the "
                "whole model."
            )
        if format == "transformers":
            write_pair(self, tokenizer, folder)
        elif format == "sentence-transformers":
            write_pair_modules(self, tokenizer, folder)
        else:
            super().export(format, folder, tokenizer)
