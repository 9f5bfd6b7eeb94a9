"""Light: two heads on vectors that are there already, small enough to train on a laptop.

An image is the vector that a locked network makes of it, computed once. A caption is the mean of
word vectors, which are trained (any language, nothing to fetch), or the vector that a locked text
network makes of it, computed once too; or both sides are vectors that the data bring
(text=vectors), of whatever networks, pictures or not. A head brings each into the joint space.

Heads on such vectors are exported as two matrices, images (c, d) and texts (c, d), for whatever
makes and keeps the vectors.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import refuse_given, setting
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.base import Inputs, ModelConfig, TokenizerNeeds, Usual, models
from simgrad.models.networks import backbones
from simgrad.models.networks.backbones import Backbone
from simgrad.models.networks.heads import HeadSettings, HeadsModel
from simgrad.models.networks.layers import valid, word_embedding
from simgrad.models.networks.quick import QuickLinear, left_out
from simgrad.models.networks.sentences import SentenceNetwork
from simgrad.models.networks.tuning import grouped

_WORDS, _VECTORS = "words", "vectors"


@models.declare(
    "light",
    paper="simgrad; with a locked text network, Zhai et al., CVPR 2022",
    description="two heads on cached vectors: image features, and words or a locked text network",
)
@dataclass(frozen=True)
class Light(HeadSettings):
    usual = Usual("focused-deviance", 7e-4)  # results/light
    small: ClassVar[dict[str, Any]] = {**ModelConfig.small, "text": _WORDS, "pooling": "auto"}

    text: str | None = setting(
        _WORDS,
        "words: the mean of word vectors that are trained; vectors: those that the data bring; or "
        "a text network that is locked: minilm, a folder or a hub name of transformers",
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
        own = self.text in (_WORDS, _VECTORS)
        return TokenizerNeeds() if own else self.network_tokenizer

    def require_sense(self) -> None:
        if self.text is None:
            raise InputError(f"'{self}': text is words, or names a text network.")
        if self.text in (_WORDS, _VECTORS):
            refuse_given(self, ("pooling",), f"a text network, and text={self.text} has none")
        if self.text != _WORDS:
            refuse_given(self, ("word_dimension",), "word vectors (text=words)")

    def without_downloads(self) -> Self:
        changed: dict[str, Any] = {}
        if self.text not in (_WORDS, _VECTORS) and self.lacks_text():
            changed |= {"text": _WORDS, "pooling": "auto"}
        if not backbones.here(self.image):
            changed["image"] = "efficientnet-lite0"
        return dataclasses.replace(self, **changed)


class LightModel(HeadsModel):
    """Nothing is trained but the heads, and word vectors where there are any."""

    config: Light
    linear = QuickLinear

    def __init__(self, config: Light, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.reads_vectors = config.text == _VECTORS
        if self.reads_vectors and self.image is None and not config.hidden:
            self._begin_as_given()

    @torch.no_grad()
    def _begin_as_given(self) -> None:
        """Vectors of one network on both sides are alike before any training: keep that."""
        image, text = self.image_projection, self.text_projection
        assert isinstance(image, nn.Linear)
        assert isinstance(text, nn.Linear)
        if image.in_features == text.in_features:
            nn.init.orthogonal_(image.weight)
            text.weight.copy_(image.weight)

    def text_network(self) -> "SentenceNetwork | WordMean | GivenVectors":
        config = self.config
        if config.text == _WORDS:
            return WordMean(self.inputs.vocabulary_size, config.word_dimension)
        if config.text == _VECTORS:
            return GivenVectors(self.inputs.caption_dimension)
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

    def formats(self) -> tuple[str, ...]:
        alone = self.reads_vectors and not self.config.hidden
        return (("heads",) if alone else ()) + super().formats()

    def export(
        self, format: str, folder: Path, tokenizer: Tokenizer, *, adapter: bool = False
    ) -> None:
        if format == "heads" and not adapter:
            write_heads(self, folder)
        else:
            super().export(format, folder, tokenizer, adapter=adapter)

    def fixed_captions(self) -> Any:
        return self.text if isinstance(self.text, SentenceNetwork) else None


class GivenVectors(nn.Module):
    """In the place of a text network, where vectors of captions come with the data."""

    longest: None = None

    def __init__(self, dimension: int) -> None:
        super().__init__()
        if not dimension:
            raise InputError(
                "text=vectors reads caption vectors that come with the data, and these have none: "
                "`simgrad datasets --layouts` shows the layout embeddings."
            )
        self.dimension = dimension

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        raise InputError(
            "this model reads vectors, not sentences: encode sentences with the network that made "
            "its data's caption vectors, and put its head (`simgrad export`) on them."
        )


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


HEADS = "heads.safetensors"
_HOW = (
    "y = normalise(normalise(x) @ matrix), row by row; a similarity is a product of two such rows"
)


def write_heads(model: Any, folder: Path) -> None:
    """Both matrices of a model with linear heads."""
    from safetensors.torch import save_file

    matrices = {
        "images": model.image_projection.weight.detach().T.contiguous().cpu(),
        "texts": model.text_projection.weight.detach().T.contiguous().cpu(),
    }
    save_file(matrices, folder / HEADS, metadata={"how": _HOW})
