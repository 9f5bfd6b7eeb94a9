"""Light: two heads on vectors that are there already, small enough to train on a laptop.

An image is the vector that a locked network makes of it, computed once. A caption is the mean of
word vectors, which are trained (any language, nothing to fetch), or the vector that a locked text
network makes of it, computed once too. A head brings each into the joint space.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import refuse_given, setting
from simgrad.models.base import Inputs, ModelConfig, TokenizerNeeds, models
from simgrad.models.networks import backbones
from simgrad.models.networks.backbones import Backbone
from simgrad.models.networks.heads import HeadSettings, HeadsModel
from simgrad.models.networks.layers import valid, word_embedding
from simgrad.models.networks.quick import QuickLinear, left_out
from simgrad.models.networks.sentences import SentenceNetwork
from simgrad.models.networks.tuning import grouped

_WORDS = "words"


@models.declare(
    "light",
    paper="simgrad; with a locked text network, Zhai et al., CVPR 2022",
    description="two heads on cached vectors: image features, and words or a locked text network",
)
@dataclass(frozen=True)
class Light(HeadSettings):
    small: ClassVar[dict[str, Any]] = {**ModelConfig.small, "text": _WORDS, "pooling": "auto"}

    text: str | None = setting(
        _WORDS,
        "words: the mean of word vectors that are trained; or a text network that is locked: "
        "minilm, a folder or a hub name of transformers",
    )
    word_dimension: int = setting(300, "size of a word vector (text=words)")
    dropout: float = setting(
        0.3,
        "share of the numbers that a head reads which are left out while training",
        at_least=0,
        below=1,
    )

    def build(self, inputs: Inputs) -> "LightModel":
        return LightModel(self, inputs)

    @property
    def reads(self) -> str:
        return "global"

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        self.require_sense()  # before a network is looked for
        return TokenizerNeeds() if self.text == _WORDS else self.network_tokenizer

    def require_sense(self) -> None:
        if self.text is None:
            raise InputError(f"'{self}': text is words, or names a text network.")
        if self.text == _WORDS:
            refuse_given(self, ("pooling",), "a text network, and text=words has none")
        else:
            refuse_given(self, ("word_dimension",), "word vectors (text=words)")

    def without_downloads(self) -> Self:
        changed: dict[str, Any] = {}
        if self.text != _WORDS and self.lacks_text():
            changed |= {"text": _WORDS, "pooling": "auto"}
        if not backbones.here(self.image):
            changed["image"] = "efficientnet-lite0"
        return dataclasses.replace(self, **changed)


class LightModel(HeadsModel):
    """Nothing is trained but the heads, and word vectors where there are any."""

    config: Light
    linear = QuickLinear

    def text_network(self) -> "SentenceNetwork | WordMean":
        config = self.config
        if config.text == _WORDS:
            return WordMean(self.inputs.vocabulary_size, config.word_dimension)
        return SentenceNetwork(config.text, config.pooling, {})

    def locked(self) -> list[nn.Module]:
        """The networks that stay as they are."""
        found = [] if self.image is None else [self.image.network]
        return [*found, self.text.net] if isinstance(self.text, SentenceNetwork) else found

    def freeze(self) -> None:
        for network in self.locked():
            network.requires_grad_(False)

    def train(self, mode: bool = True) -> "LightModel":
        super().train(mode)
        for network in self.locked():
            network.eval()  # no dropout, no new statistics
        return self

    def read(self, vectors: Tensor) -> Tensor:
        """What never changes is soon learned by heart; left out in part, it is not."""
        vectors = super().read(vectors)
        return left_out(vectors, self.config.dropout) if self.training else vectors

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        return grouped((p, lr) for p in [*self.heads(), *self.text.parameters()])

    def fixed_network(self) -> "tuple[Backbone, int | None] | None":
        return None if self.image is None else (self.image, None)

    def fixed_captions(self) -> Any:
        return self.text if isinstance(self.text, SentenceNetwork) else None


class WordMean(nn.Module):
    """The mean of a caption's word vectors."""

    longest: None = None  # captions of any length

    def __init__(self, words: int, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension
        self.words = word_embedding(words, dimension)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(m, length), (m,) -> (m, dimension)"""
        real = torch.where(valid(lengths, tokens.shape[1]), tokens, 0)
        return F.embedding_bag(real, self.words.weight, mode="mean", padding_idx=0)
