"""Layers that several models share: unit length, text GRUs, image backbones.

Recurrent layers run over padded batches without asking the host how long anything is, so that a
training step can be captured as a CUDA graph; padding never reaches a result.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from simgrad.models.networks.backbones import backbone
from simgrad.models.networks.recurrent import (
    gru_state_at,
    gru_states,
    in_half_precision,
    scaled_states,
)

_SHORTEST = 1e-12  # what a shorter vector is divided by


def l2norm(x: Tensor, dim: int = -1) -> Tensor:
    """Unit length along `dim`, in float32; a zero vector stays zero."""
    unit: Callable[[Tensor, int], Tensor] = _Unit.apply
    return unit(x.float(), dim)


class _Unit(torch.autograd.Function):
    """What F.normalize does, with half of its backward pass's reading and writing."""

    @staticmethod
    def forward(context: Any, x: Tensor, dim: int) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=dim, keepdim=True).clamp_min_(_SHORTEST)
        unit: Tensor = x / length
        context.dim = dim
        context.save_for_backward(unit, length)
        return unit

    @staticmethod
    @once_differentiable
    def backward(context: Any, above: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        unit, length = context.saved_tensors
        along = (above * unit).sum(context.dim, keepdim=True)
        return torch.addcmul(above, unit, along, value=-1).div_(length), None


def cast_once(x: Tensor) -> Tensor:
    """What several layers read, in the precision of products: else each would cast it again."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def xavier_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer as VSE++ starts it: uniform in ±sqrt(6 / (in + out)), no bias."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def valid(lengths: Tensor, longest: int) -> Tensor:
    """(m,) lengths -> (m, longest) mask, true = a real position."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def word_embedding(words: int, dimension: int) -> nn.Embedding:
    """Word vectors, started uniformly in ±0.1 as published."""
    embedding = nn.Embedding(words, dimension)
    nn.init.uniform_(embedding.weight, -0.1, 0.1)
    return embedding


def last_state(rnn: nn.GRU, x: Tensor, lengths: Tensor) -> Tensor:
    """(m, L, d) -> (m, hidden): the state after each sequence's last real step.

    A one-way GRU's state there cannot depend on the padding behind it, so a GPU runs the padded
    batch and picks; on a CPU, where steps cost arithmetic rather than launches, packing is faster
    (other programs' formats have no packing).
    """
    if not x.is_cuda and not torch.compiler.is_exporting():
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        state: Tensor = rnn(packed)[1]
        return state[-1]
    return gru_state_at(rnn, x, lengths - 1)


class GruText(nn.Module):
    """Word vectors and a GRU: its state after the last word (VSE++), or after each (SCAN)."""

    longest = None  # it reads captions of any length

    def __init__(
        self, words: int, word_dimension: int, dimension: int, layers: int = 1, *, whole: bool
    ) -> None:
        super().__init__()
        self.embed = word_embedding(words, word_dimension)
        self.rnn = nn.GRU(word_dimension, dimension, layers, batch_first=True)
        self.whole = whole

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(m, L) -> (m, dimension) for the sentence as a whole, or (m, L, dimension)."""
        words = self.embed(tokens)
        return last_state(self.rnn, words, lengths) if self.whole else gru_states(self.rnn, words)


class BiGru(nn.Module):
    """A GRU in both directions, averaged at each step: (m, L, d) -> (m, L, hidden).

    The backward GRU reads each sequence's real part from its end. In half precision it passes over
    the padding; elsewhere a gather turns only the real part around, and its states back. A layer
    above reads the states of both directions side by side.
    """

    def __init__(self, inputs: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.onward = nn.GRU(inputs, hidden, batch_first=True)
        self.backward_ = nn.GRU(inputs, hidden, batch_first=True)
        self.above = BiGru(2 * hidden, hidden, layers - 1) if layers > 1 else None

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Steps beyond a sequence's length are undefined; mask them."""
        if self.above is not None:
            states: Tensor = self.above(self._both(x, lengths, joined=True), lengths)
            return states
        return self._both(x, lengths, joined=False)

    def _both(self, x: Tensor, lengths: Tensor, joined: bool) -> Tensor:
        if in_half_precision(x):
            absent = ~valid(lengths, x.shape[1])
            return scaled_states([self.onward, self.backward_], x, absent, joined=joined)
        turn = turned(lengths, x.shape[1])
        onward = gru_states(self.onward, x)
        back = _reorder(gru_states(self.backward_, _reorder(x, turn)), turn)
        return torch.cat([onward, back], dim=2) if joined else (onward + back) / 2


def turned(lengths: Tensor, longest: int) -> Tensor:
    """(m, longest): where each step is, read from the end; padding stays in its place."""
    steps = torch.arange(longest, device=lengths.device).expand(lengths.shape[0], longest)
    return torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)


def _reorder(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[-1]))


class BiGruText(nn.Module):
    """SCAN's text encoder: word vectors and a two-way GRU; one vector for each word."""

    longest = None

    def __init__(self, words: int, word_dimension: int, dimension: int, layers: int = 1) -> None:
        super().__init__()
        self.embed = word_embedding(words, word_dimension)
        self.rnn = BiGru(word_dimension, dimension, layers)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        words: Tensor = self.rnn(self.embed(tokens), lengths)
        return words


class Tower(nn.Module):
    """A pretrained image backbone: frozen, or fine-tuned with or without its batch norms."""

    def __init__(self, name: str, weights: str | None, *, finetune: bool, keep: bool) -> None:
        super().__init__()

        self.body: Any = backbone(name, weights)
        self.dimension: int = self.body.dimension
        self.grid_dimension: int = self.body.grid_dimension
        self.finetune = finetune
        self.keep = keep  # batch norms keep their statistics even while fine-tuned
        self.requires_grad_(finetune)

    def set_trained(self, trained: bool) -> None:
        """Thaw or freeze it."""
        if self.finetune != trained:
            self.finetune = trained
            self.requires_grad_(trained)

    def train(self, mode: bool = True) -> "Tower":
        """A frozen backbone stays in evaluation mode: its statistics never drift."""
        super().train(mode and self.finetune)
        if self.keep:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def pooled(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, dimension); what it made before, (n, dimension), stays."""
        if pixels.dim() == 2:
            return pixels
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            out: Tensor = self.body.pooled(pixels)
            return out

    def grid(self, pixels: Tensor, cells: int) -> Tensor:
        """(n, 3, h, w) -> (n, cells * cells, grid_dimension); what it made before stays."""
        if pixels.dim() == 3:
            return pixels
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            out: Tensor = self.body.grid(pixels, cells)
            return out
