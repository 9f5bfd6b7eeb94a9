"""BERT, whole or split into a text half and a fusion half that also looks at an image.

Devlin et al., NAACL 2019. Ours and not transformers', because X-VLM cuts it inside: its last layers
have a second attention, over image tokens of another width than BERT's own (transformers' reads its
own width alone), and run without the layers before them. One BERT then serves all models: it asks
the host nothing, so that a step can be captured, and has keys and values in one product.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.models.networks.parts import WITH_TOKENIZER, pretrained_folder, read_weights, stored


@dataclass(frozen=True)
class BertSettings:
    """The sizes of a BERT; `fusion` of its layers look at an image `context` numbers wide."""

    words: int
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    positions: int = 512
    dropout: float = 0.1
    fusion: int = 0
    context: int = 0


class MultiHeadAttention(nn.Module):
    """Multi-head attention over itself, or over a context of its own width."""

    def __init__(self, settings: BertSettings, context: int | None = None) -> None:
        super().__init__()
        hidden = settings.hidden
        self.heads, self.rate = settings.heads, settings.dropout
        self.ask = nn.Linear(hidden, hidden)
        self.look = nn.Linear(hidden if context is None else context, 2 * hidden)  # keys, values
        self.out = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(settings.dropout)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None) -> Tensor:
        """mask: (n, length of the context), true = real."""
        query = self._split(self.ask(x))
        key, value = (self._split(part) for part in self.look(context).chunk(2, dim=-1))
        rate = self.rate if self.training else 0.0
        allowed = None if mask is None else mask[:, None, None, :]
        seen = F.scaled_dot_product_attention(query, key, value, allowed, dropout_p=rate)
        seen = seen.transpose(1, 2).flatten(2)
        out: Tensor = self.norm(x + self.drop(self.out(seen)))
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Layer(nn.Module):
    """Self attention, in fusion layers attention over the image, and two linear layers."""

    def __init__(self, settings: BertSettings, fusion: bool) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(settings)
        self.cross = MultiHeadAttention(settings, settings.context) if fusion else None
        self.inner = nn.Linear(settings.hidden, settings.inner)
        self.outer = nn.Linear(settings.inner, settings.hidden)
        self.drop = nn.Dropout(settings.dropout)
        self.norm = nn.LayerNorm(settings.hidden, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None, image: Tensor | None) -> Tensor:
        x = self.attention(x, x, mask)
        if self.cross is not None and image is not None:
            x = self.cross(x, image, None)
        out: Tensor = self.norm(x + self.drop(self.outer(F.gelu(self.inner(x)))))
        return out


class Bert(nn.Module):
    """Tokens (n, L) -> hidden states (n, L, hidden)."""

    part_kind: ClassVar[str] = "bert"

    def __init__(self, settings: BertSettings) -> None:
        super().__init__()
        self.settings = settings
        self.part_settings = dataclasses.asdict(settings)
        hidden = settings.hidden
        self.words = nn.Embedding(settings.words, hidden)
        self.positions = nn.Embedding(settings.positions, hidden)
        self.kinds = nn.Embedding(2, hidden)  # first or second sentence; captions are one
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.drop = nn.Dropout(settings.dropout)
        first = settings.layers - settings.fusion
        self.layers = nn.ModuleList(Layer(settings, i >= first) for i in range(settings.layers))
        self._start()

    def _start(self) -> None:
        """BERT's 0.02 belongs to its width of 768; narrower layers need more to say as much."""
        spread = 0.02 * (768 / self.settings.hidden) ** 0.5
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=spread)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def embed(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.settings.positions:
            raise InputError(
                f"captions of {length} word pieces, but this BERT reads {self.settings.positions};"
                " cut them with the tokenizer's `longest`."
            )
        x = self.words(tokens) + self.positions.weight[:length] + self.kinds.weight[0]
        out: Tensor = self.drop(self.norm(x))
        return out

    def text(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """The text half: every layer before the fusion layers."""
        x = self.embed(tokens)
        for layer in self.layers[: self.settings.layers - self.settings.fusion]:
            x = layer(x, mask, None)
        return x

    def fuse(self, x: Tensor, mask: Tensor | None, image: Tensor | None) -> Tensor:
        """The fusion half, on what the text half gave; without an image it is BERT's own end."""
        for layer in self.layers[self.settings.layers - self.settings.fusion :]:
            x = layer(x, mask, image)
        return x

    def forward(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        return self.fuse(self.text(tokens, mask), mask, None)


def bert(source: str | None, settings: BertSettings) -> Bert:
    """A BERT: stored in a checkpoint that is being loaded, pretrained, or untrained."""
    kept = stored("bert")
    if kept is not None:
        return Bert(BertSettings(**kept))
    if source is None:
        return Bert(settings)
    folder = pretrained_folder(source, "bert", WITH_TOKENIZER)
    config = read_json(folder / "config.json")
    try:
        sizes = dataclasses.replace(
            settings,
            words=config["vocab_size"],
            hidden=config["hidden_size"],
            heads=config["num_attention_heads"],
            inner=config["intermediate_size"],
            positions=config["max_position_embeddings"],
            layers=settings.layers if settings.fusion else config["num_hidden_layers"],
        )
    except (KeyError, TypeError):
        raise InputError(f"{folder}/config.json: not the settings of a BERT.") from None
    if settings.words > sizes.words:
        raise InputError(
            f"bert={source} knows {sizes.words:,} word pieces, but captions come in "
            f"{settings.words:,}: omit `vocabulary` to use its own."
        )
    model = Bert(sizes)
    state, _ = from_transformers(read_weights(folder))
    missing = [name for name in model.state_dict() if name not in state and ".cross." not in name]
    if missing:
        raise InputError(f"{folder}: not a complete BERT; {missing[0]} and others are missing.")
    model.load_state_dict(state, strict=False)
    return model


def from_transformers(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """transformers' names of BERT's weights, which X-VLM has too -> ours, and which were read."""
    # Older files call a layer norm's weight gamma and its bias beta.
    given = {
        name.removeprefix("bert.").replace("gamma", "weight").replace("beta", "bias"): name
        for name in state
    }
    found: dict[str, Tensor] = {}
    read: list[str] = []

    def take(ours: str, *theirs: str) -> None:
        for end in ("weight", "bias"):
            names = [given[f"{name}.{end}"] for name in theirs if f"{name}.{end}" in given]
            if len(names) == len(theirs):
                found[f"{ours}.{end}"] = torch.cat([state[name] for name in names])
                read.extend(names)

    for ours, theirs in (("words", "word"), ("positions", "position"), ("kinds", "token_type")):
        take(ours, f"embeddings.{theirs}_embeddings")
    take("norm", "embeddings.LayerNorm")
    numbers = re.findall(r"encoder\.layer\.(\d+)\.", " ".join(given))
    for i in sorted(set(map(int, numbers))):
        at = f"encoder.layer.{i}"
        for ours, theirs in (("attention", "attention"), ("cross", "crossattention")):
            take(f"layers.{i}.{ours}.ask", f"{at}.{theirs}.self.query")
            take(f"layers.{i}.{ours}.look", f"{at}.{theirs}.self.key", f"{at}.{theirs}.self.value")
            take(f"layers.{i}.{ours}.out", f"{at}.{theirs}.output.dense")
            take(f"layers.{i}.{ours}.norm", f"{at}.{theirs}.output.LayerNorm")
        take(f"layers.{i}.inner", f"{at}.intermediate.dense")
        take(f"layers.{i}.outer", f"{at}.output.dense")
        take(f"layers.{i}.norm", f"{at}.output.LayerNorm")
    return found, read
