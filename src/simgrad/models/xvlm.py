"""X-VLM, fine-tuned for retrieval: two towers, and a second look at pairs by fused layers.

Zeng, Zhang, Li: Multi-grained vision language pre-training, ICML 2022. A Swin tower and the text
half of a BERT give vectors for a first ranking (any objective trains them); BERT's fusion half
reads caption and image together and says whether they match, trained on hard negatives of the
batch and used to re-rank the best of the first ranking.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.models.base import (
    CaptionBatch,
    Encoded,
    Inputs,
    ModelConfig,
    Reranker,
    RetrievalModel,
    TokenizerNeeds,
    models,
    tokens_of,
)
from simgrad.models.networks.bert import BertSettings, bert
from simgrad.models.networks.layers import l2norm, valid
from simgrad.models.networks.parts import here
from simgrad.models.networks.pixels import CLIP_MEAN, CLIP_STD, Standardise
from simgrad.models.networks.swin import SwinSettings, swin

_PAIRS = 256  # that the fusion half looks at together


@models.declare(
    "x-vlm",
    paper="Zeng et al., ICML 2022",
    description="Swin and BERT towers, re-ranked by fused layers",
)
@dataclass(frozen=True)
class Xvlm(ModelConfig):
    small: ClassVar[dict[str, Any]] = {
        "dimension": 64, "size": 64, "rerank": 32, "swin": None, "swin_width": 32,
        "swin_depths": "1-1", "swin_heads": "1-2", "swin_window": 4, "bert": None,
        "bert_hidden": 64, "bert_heads": 2, "text_layers": 1, "fusion_layers": 1,
    }  # fmt: skip

    dimension: int = setting(256, "size of the joint space")
    matching: bool = setting(True, "train the fusion half to tell pairs from hard negatives")
    rerank: int = setting(256, "candidates re-ranked for each query (Flickr30k: 128)")
    temperature: float = setting(0.07, "temperature of the sampling of hard negatives")
    size: int = setting(384, "side of a picture in pixels")
    swin: str | None = setting(None, "Swin's folder or hub name; none: untrained")
    swin_width: int = setting(128, "width of an untrained Swin's first stage")
    swin_depths: str = setting("2-2-18-2", "blocks in an untrained Swin's stages")
    swin_heads: str = setting("4-8-16-32", "attention heads in an untrained Swin's stages")
    swin_window: int = setting(12, "window of an untrained Swin")
    bert: str | None = setting(None, "BERT's folder or hub name; none: untrained")
    bert_hidden: int = setting(768, "width of an untrained BERT")
    bert_heads: int = setting(12, "attention heads of an untrained BERT")
    bert_dropout: float = setting(0.1, "dropout in an untrained BERT")
    text_layers: int = setting(6, "BERT layers that read only text")
    fusion_layers: int = setting(6, "BERT layers that also read the image")
    most_words: int = setting(30, "longest caption in words")
    most_tokens: int = setting(40, "longest caption in word pieces")

    def build(self, inputs: Inputs) -> "XvlmModel":
        return XvlmModel(self, inputs)

    @property
    def reads(self) -> str:
        return "pixels"

    @property
    def tokenizer_needs(self) -> TokenizerNeeds:
        network = None if self.bert is None else ("bert", self.bert)
        return TokenizerNeeds(True, network, cleaning=caption_cleaning(self.most_words))

    def without_downloads(self) -> "Xvlm":
        return dataclasses.replace(
            self,
            swin=self.swin if here(self.swin) else None,
            bert=self.bert if here(self.bert) else None,
        )


def caption_cleaning(words: int) -> str:
    """X-VLM's own cleaning of captions as steps of a tokenizer: lower case, some punctuation gone,
    hyphens and slashes to blanks, `words` words at most."""
    replaced = (
        (r"""[,.'!?"()*#:;~]""", ""),
        (r"[-/]", " "),
        (r"<person>", "person"),
        (r"\s{2,}", " "),
        (r"\A +| +\z|\n+\z", ""),
        (rf"\A(?:[^ ]* ){{{words - 1}}}[^ ]*\K [\s\S]*", ""),  # \K: what stands before it is kept
    )
    steps = [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in replaced
    ]
    return json.dumps({"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *steps]})


def _swin_settings(config: Xvlm) -> SwinSettings:
    return SwinSettings(
        size=config.size,
        width=config.swin_width,
        depths=_numbers(config.swin_depths, "swin_depths"),
        heads=_numbers(config.swin_heads, "swin_heads"),
        window=config.swin_window,
    )


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("-"))
    except ValueError:
        raise InputError(f"{option} is numbers with dashes between, not {text!r:.40}.") from None


class XvlmModel(RetrievalModel):
    """X-VLM."""

    config: Xvlm
    reranks = True

    def __init__(self, config: Xvlm, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        self.needs("pixels")
        self.swin = swin(config.swin, _swin_settings(config))
        self.standardise = Standardise(CLIP_MEAN, CLIP_STD)
        self.sees(self.swin.settings.size, "x-vlm")
        sizes = BertSettings(
            words=inputs.vocabulary_size,
            hidden=config.bert_hidden,
            layers=config.text_layers + config.fusion_layers,
            heads=config.bert_heads,
            inner=4 * config.bert_hidden,
            dropout=config.bert_dropout,
            fusion=config.fusion_layers,
            context=self.swin.width,
        )
        self.bert = bert(config.bert, sizes)
        self.auxiliary_sees = "batch" if config.matching else "nothing"
        self.longest = min(config.most_tokens, self.bert.settings.positions)
        hidden = self.bert.settings.hidden
        self.vision_proj = nn.Linear(self.swin.width, config.dimension)
        self.text_proj = nn.Linear(hidden, config.dimension)
        self.matching_head = nn.Sequential(
            nn.Linear(hidden, 2 * hidden),
            nn.LayerNorm(2 * hidden),
            nn.GELU(),
            nn.Linear(2 * hidden, 2),
        )

    @property
    def candidates(self) -> int:
        """How many of the first ranking are re-ranked."""
        return self.config.rerank

    def reranker(self, images: Encoded, captions: Encoded) -> Reranker:
        def score(pairs: Tensor) -> Tensor:
            return self.scores(images, captions, pairs.to(next(self.parameters()).device))

        return Reranker(score, self.candidates)

    def encode_images(self, images: Tensor) -> Encoded:
        cells = self.swin(self.standardise(images))
        tokens = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
        return Encoded(l2norm(self.vision_proj(tokens[:, 0])), tokens)

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        mask = valid(lengths, tokens.shape[1])
        states = self.bert.text(tokens, mask)
        return Encoded(l2norm(self.text_proj(states[:, 0])), states, mask)

    def match(self, images: Tensor, captions: Tensor, mask: Tensor | None) -> Tensor:
        """Image tokens and text states, row by row -> (pairs, 2) logits of (no, yes)."""
        fused = self.bert.fuse(captions, mask, images)
        logits: Tensor = self.matching_head(fused[:, 0])
        return logits.float()

    def scores(self, images: Encoded, captions: Encoded, pairs: Tensor) -> Tensor:
        """How well each pair (image row, caption row) of (p, 2) matches: (p,) logits."""
        parts = []
        for start in range(0, len(pairs), _PAIRS):
            image, caption = pairs[start : start + _PAIRS].unbind(1)
            mask = None if captions.mask is None else captions.mask[caption]
            states = tokens_of(captions)[caption]
            parts.append(self.match(tokens_of(images)[image], states, mask)[:, 1])
        return torch.cat(parts) if parts else pairs.new_zeros(0, dtype=torch.float32)

    def auxiliary_loss(
        self, images: Encoded, captions: Encoded, batch: CaptionBatch
    ) -> Tensor | None:
        """Each caption with its image, with a wrong image, and its image with a wrong caption."""
        if not self.config.matching or len(images) < 2:
            return None
        own = batch.image_of_caption
        rows = torch.arange(len(own), device=own.device)
        with torch.no_grad():
            similarities = self.similarities(images, captions).T / self.config.temperature
            images_row = torch.arange(len(images), device=own.device)
            # A row without a caption only fills up the batch; it may repeat an image.
            filling = torch.ones_like(images_row, dtype=torch.bool).index_fill_(0, own, False)
            image = hard_draw(similarities, filling | (own[:, None] == images_row))
            caption = hard_draw(similarities.T[own], own[:, None] == own)
        image = torch.cat([own, image, own])
        caption = torch.cat([rows, rows, caption])
        mask = None if captions.mask is None else captions.mask[caption]
        logits = self.match(tokens_of(images)[image], tokens_of(captions)[caption], mask)
        target = torch.zeros(len(logits), dtype=torch.long, device=own.device)
        target[: len(own)] = 1
        return F.cross_entropy(logits, target)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The recipe's weight decay everywhere but on biases and layer norms."""
        named = [(name, p) for name, p in self.named_parameters() if p.requires_grad]
        plain = [p for name, p in named if p.dim() < 2]
        decayed = [p for name, p in named if p.dim() >= 2]
        return [
            {"params": decayed, "lr": lr},
            {"params": plain, "lr": lr, "weight_decay": 0.0},
        ]


def hard_draw(logits: Tensor, own: Tensor) -> Tensor:
    """For each row one column that is not its own, likelier the more similar."""
    chance = (logits.softmax(1) + 1e-5).log().masked_fill(own, float("-inf"))
    # The largest of chances shifted by Gumbel noise is a draw from them, without the host.
    noise = -torch.empty_like(chance).exponential_().log()
    return (chance + noise).argmax(1)
