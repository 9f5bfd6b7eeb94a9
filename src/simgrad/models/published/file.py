"""A published checkpoint as it is in its file.

Whoever turns it into one of our models takes weights out of its parts by name. What nobody took is
refused in the end: a weight that is left lying would mean a model other than the one in the file.
"""

import re
import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.models.base import Inputs, ModelConfig
from simgrad.models.networks.bert import from_transformers

State = dict[str, Tensor]
_GRU = re.compile(r"(weight|bias)_([ih]h)_l(\d+)(_reverse)?")


class PublishedPart:
    """Weights by name, and which of them were taken."""

    def __init__(self, path: Path, weights: State) -> None:
        self.path, self._weights = path, dict(weights)
        self._taken: set[str] = set()
        # A batch norm counts batches; nothing reads it.
        self.pass_over(r".*\.num_batches_tracked")

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def names(self) -> list[str]:
        return list(self._weights)

    def has(self, start: str) -> bool:
        """Whether a name begins like this."""
        return any(name.startswith(start) for name in self._weights)

    def size(self, name: str, axis: int = 0) -> int:
        """The size of a weight that the model cannot do without."""
        shape = tuple(self.peek(name).shape)
        if axis >= len(shape):
            raise InputError(f"{self.path}: the weight '{name}' is of shape {shape}.")
        return int(shape[axis])

    def peek(self, name: str) -> Tensor:
        """A weight that the model cannot do without."""
        if name not in self._weights:
            raise InputError(f"{self.path}: partial; the weight '{name}' is missing.")
        return self._weights[name]

    def take(self, name: str) -> Tensor:
        """The same, noted as read."""
        self._taken.add(name)
        return self.peek(name)

    def under(self, theirs: str, ours: str) -> State:
        """Everything under a name, under another."""
        start = f"{theirs}."
        names = [n for n in self._weights if n.startswith(start) and n not in self._taken]
        return {f"{ours}.{name.removeprefix(start)}": self.take(name) for name in names}

    def layers(self, rnn: str) -> int:
        """How many layers a GRU has."""
        self.size(f"{rnn}.weight_hh_l0")
        return sum(f"{rnn}.weight_hh_l{i}" in self for i in range(len(self._weights)))

    def gru(self, theirs: str, ours: str) -> State:
        """A GRU; of a two-way one each layer stands above the one before."""
        found = {}
        two_way = f"{theirs}.weight_ih_l0_reverse" in self
        for name in self.names():
            match = _GRU.fullmatch(name.removeprefix(f"{theirs}."))
            if match is None or not name.startswith(f"{theirs}."):
                continue
            kind, gate, layer, back = match.groups()
            place, number = ours, int(layer)
            if two_way:
                place += ".above" * number + (".backward_" if back else ".onward")
                number = 0
            found[f"{place}.{kind}_{gate}_l{number}"] = self.take(name)
        return found

    def pass_over(self, *patterns: str) -> None:
        """Weights that the original does not read either, or that follow from the sizes."""
        for pattern in patterns:
            self._taken |= {n for n in self._weights if re.fullmatch(pattern, n)}

    def drop_prefix(self, prefix: str) -> None:
        """Read names as if they did not begin with this."""
        self._weights = {n.removeprefix(prefix): w for n, w in self._weights.items()}
        self._taken = {n.removeprefix(prefix) for n in self._taken}

    def untaken(self) -> list[str]:
        return [name for name in self._weights if name not in self._taken]


@dataclass(frozen=True)
class PublishedFile:
    """A published checkpoint as it is in the file."""

    path: Path
    image: PublishedPart  # of X-VLM: everything
    text: PublishedPart
    options: dict[str, Any]
    facts: dict[str, Any]  # epoch, best_rsum: plain data to carry along
    given: dict[str, Any] = field(default_factory=dict)  # settings that the user told us

    def option(self, name: str, default: Any) -> Any:
        return self.options.get(name, default)

    def only(self, name: str, *values: Any) -> Any:
        """The value of an option; one that our model does not have is refused."""
        value = self.options.get(name, values[0])
        if value not in values:
            raise InputError(
                f"{self.path}: trained with {name}={reprlib.repr(value)}; only "
                f"{' or '.join(map(repr, values))} can be imported."
            )
        return value

    def norms(self) -> dict[str, bool]:
        """Whether images and captions are brought to unit length."""
        return {
            "image_norm": not self.option("no_imgnorm", False),
            "text_norm": not self.option("no_txtnorm", False),
        }

    def word_sizes(self) -> dict[str, Any]:
        """The sizes of the GRU over words, as our settings call them."""
        layers = self.text.layers("rnn")
        told = self.option("num_layers", layers)
        if told != layers:
            told = reprlib.repr(told)
            raise InputError(
                f"{self.path}: partial; a GRU of {told} layers, but weights of {layers}."
            )
        return {
            "dimension": self.text.size("rnn.weight_hh_l0", 1),
            "word_dimension": self.text.size("embed.weight", 1),
            "gru_layers": layers,
        }

    def words(self, ours: str = "text") -> State:
        """Word vectors and the GRU over them."""
        return {
            **self.text.under("embed", f"{ours}.embed"),
            **self.text.gru("rnn", f"{ours}.rnn"),
        }

    def linear(self) -> State:
        """The linear layer on features; its weight may be split into length and direction."""
        if "fc.weight_v" not in self.image:
            return self.image.under("fc", "fc")
        direction = self.image.take("fc.weight_v")
        weight = direction * (self.image.take("fc.weight_g") / direction.norm())
        return {"fc.weight": weight, "fc.bias": self.image.take("fc.bias")}


@dataclass(frozen=True)
class Mapped:
    """A published checkpoint as settings, inputs and weights of ours."""

    config: ModelConfig
    inputs: Inputs
    state: State
    left_out: str | None = None  # what the file has and the model has not


def bert_sizes(part: PublishedPart, start: str) -> tuple[dict[str, Any], int]:
    """Width, layers and heads as our settings call them, and the number of word pieces."""
    name = f"{start}embeddings.word_embeddings.weight"
    hidden = part.size(name, 1)
    numbers = re.findall(rf"{re.escape(start)}encoder\.layer\.(\d+)\.", " ".join(part.names()))
    layers = 1 + max(map(int, numbers), default=-1)
    # Shapes do not tell how many heads there are; published BERTs have one for 64 numbers.
    heads = max(1, hidden // 64)
    return {"bert_hidden": hidden, "bert_layers": layers, "bert_heads": heads}, part.size(name)


def bert_weights(part: PublishedPart, start: str, ours: str) -> State:
    """The weights of a BERT under `start`, as weights of ours."""
    # Constants, and a layer above [CLS] that none of these models runs.
    part.pass_over(rf"{re.escape(start)}(embeddings\.position_ids|pooler\..*)")
    given = {name.removeprefix(start): name for name in part.names() if name.startswith(start)}
    found, read = from_transformers({short: part.peek(name) for short, name in given.items()})
    for short in read:
        part.take(given[short])
    return {f"{ours}.{name}": weight for name, weight in found.items()}
