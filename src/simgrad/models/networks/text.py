"""Text encoders as parts: which of them reads the captions is a setting that models share.

A GRU over words is what most models were published with; with `text=bert` a BERT reads word pieces
in its place, pretrained (`bert=FOLDER_OR_HUB_NAME`) or not (`bert=none`).
"""

import dataclasses
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from simgrad.core.spec import setting
from simgrad.models.base import ModelConfig, RetrievalModel, TokenizerNeeds
from simgrad.models.networks import parts
from simgrad.models.networks.bert import Bert, BertSettings, bert
from simgrad.models.networks.layers import BiGruText, GruText, valid


@dataclass(frozen=True)
class TextSettings(ModelConfig):
    """Settings of a model whose captions a GRU or a BERT may read."""

    dimension: int = setting(1024, "size of the joint space")
    text: str = setting("gru", "text encoder", choices=("gru", "bert"))
    word_dimension: int = setting(300, "size of a word vector (GRUs)")
    gru_layers: int = setting(1, "layers of the GRU over words")
    bert: str | None = setting("bert-base-uncased", "BERT's folder or hub name; none: untrained")
    bert_hidden: int = setting(768, "width of an untrained BERT")
    bert_layers: int = setting(12, "layers of an untrained BERT")
    bert_heads: int = setting(12, "attention heads of an untrained BERT")
    bert_lr: float = setting(0.1, "learning rate of BERT, as a share of lr")

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        if self.text != "bert":
            return TokenizerNeeds()
        return TokenizerNeeds(True, None if self.bert is None else ("bert", self.bert))

    def without_downloads(self) -> Self:
        if self.tokenizer_needs.network is None or parts.here(self.bert):
            return self
        # A GRU learns more from little than an untrained BERT.
        words = {f.name: f.metadata["choices"] for f in dataclasses.fields(self)}["text"]
        return dataclasses.replace(self, text=next(word for word in words if word != "bert"))


class TextModel(RetrievalModel):
    """A model whose captions a GRU or a BERT reads, as its settings say."""

    config: TextSettings

    def add_text(self, *, whole: bool) -> None:
        """The encoder of captions: one vector for the sentence as a whole, or one for each word."""
        config, words = self.config, self.inputs.vocabulary_size
        sizes = (words, config.word_dimension, config.dimension, config.gru_layers)
        self.text: BertText | BiGruText | GruText
        if config.text == "bert":
            self.text = BertText(config, words, whole=whole)
        elif config.text == "bigru":
            self.text = BiGruText(*sizes)
        else:
            self.text = GruText(*sizes, whole=whole)
        self.longest = self.text.longest

    def slow_parts(self) -> list[tuple[nn.Module, float]]:
        """A pretrained BERT in place of a GRU goes slowly."""
        return [(self.text.bert, self.config.bert_lr)] if isinstance(self.text, BertText) else []


def bert_of(config: TextSettings, words: int) -> Bert:
    """The BERT that a model's settings name."""
    sizes = BertSettings(
        words=words,
        hidden=config.bert_hidden,
        layers=config.bert_layers,
        heads=config.bert_heads,
        inner=4 * config.bert_hidden,
    )
    return bert(config.bert, sizes)


class BertText(nn.Module):
    """A BERT and a linear layer: one vector for each word piece, or the first one alone."""

    def __init__(self, config: TextSettings, words: int, *, whole: bool) -> None:
        super().__init__()
        self.bert = bert_of(config, words)
        self.linear = nn.Linear(self.bert.settings.hidden, config.dimension)
        self.whole = whole
        self.longest = self.bert.settings.positions

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(m, L) -> (m, L, dimension), or (m, dimension) for the sentence as a whole."""
        states = self.bert(tokens, valid(lengths, tokens.shape[1]))
        out: Tensor = self.linear(states[:, 0] if self.whole else states)
        return out
