"""Parts of VSRN: its relation layer, and its captioner.

The relation layer is R = theta(v) phi(v)ᵀ / regions without a softmax, then W R g(v). Where there
are more regions in the batch than dimensions, theta is merged with phi, and W with g: two products
of regions and two of weights take the place of four of regions, forward and backward, and what is
in between is never made. In bfloat16 both ways are equally far from the exact result.

The captioner generates a caption from regions. A GRU reads them; a second GRU writes the caption,
fed with the true previous word and with regions weighed by additive attention against its state. As
in the published code it also learns that one <pad> follows <end>. It is trained alongside and never
used for retrieval.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from simgrad.models.networks.layers import valid
from simgrad.models.networks.recurrent import gru_states

_PAD = 0  # what every tokenizer fills captions up with


class Captioner(nn.Module):
    """Regions (m, k, d) and captions (m, L) -> the loss of writing them."""

    def __init__(
        self, dimension: int, words: int, *, hidden: int, word_dimension: int, dropout: float
    ) -> None:
        super().__init__()
        self.project = nn.Linear(dimension, hidden)
        nn.init.xavier_normal_(self.project.weight)
        self.dropout = nn.Dropout(dropout)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.embed = nn.Embedding(words, word_dimension)
        # Additive attention: tanh(W [region, state]) · u, with W split over its two inputs.
        self.of_region = nn.Linear(hidden, hidden)
        self.of_state = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(hidden + word_dimension, hidden)
        self.out = nn.Linear(hidden, words)
        nn.init.xavier_normal_(self.out.weight)

    def forward(self, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        read = gru_states(self.reader, self.dropout(self.project(regions)))
        state = read[:, -1]
        words = self.embed(tokens)
        keys = self.of_region(read)  # the same for every word
        states = []
        for step in range(words.shape[1]):
            focus = self.score(torch.tanh(keys + self.of_state(state)[:, None])).softmax(dim=1)
            seen = (focus * read).sum(1)
            state = self.writer(self.dropout(torch.cat([words[:, step], seen], dim=1)), state)
            states.append(state)
        logits = self.out(torch.stack(states, dim=1))  # (m, L, words)
        real = valid(lengths, tokens.shape[1])
        following = valid(lengths - 1, tokens.shape[1])
        target = torch.where(following, F.pad(tokens[:, 1:], (0, 1)), _PAD)
        losses = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
        return (losses * real.flatten()).sum() / len(tokens)


# A column of ones beside the regions, and of biases beside the weights: what comes of biases comes
# with the products. Seven of zeros keep rows at multiples of 16 bytes.
_MORE = 8


def related(regions: Tensor, ask: nn.Linear, out: nn.Linear) -> Tensor:
    """(n, k, d) -> (n, k, d); `ask` is theta, phi and g, one below the other."""
    n, k, d = regions.shape
    if n * k > d:
        device = regions.device.type
        half = torch.is_autocast_enabled(device)
        kind = torch.get_autocast_dtype(device) if half else regions.dtype
        merged: Callable[..., Tensor] = Merged.apply
        return merged(regions, ask.weight, ask.bias, out.weight, out.bias, kind)
    theta, phi, told = ask(regions).chunk(3, dim=-1)
    relations = theta @ phi.transpose(1, 2) / k
    return F.linear(relations @ told, out.weight, out.bias)


class Merged(torch.autograd.Function):
    """theta(v) . phi(w) = v M w and W g(w) = N w, where M and N are products of weights alone."""

    @staticmethod
    def forward(
        context: Any,
        regions: Tensor,
        ask: Tensor,
        ask_bias: Tensor,
        out: Tensor,
        out_bias: Tensor,
        kind: torch.dtype,
    ) -> Tensor:
        x, ask, out = _beside(regions, None, kind), _beside(ask, ask_bias, kind), out.to(kind)
        theta, phi, told = ask.chunk(3)
        asking, telling = theta.T @ phi, out @ told
        asked, answers = x @ asking, x @ telling.T
        share = 1 / x.shape[1]
        relations = torch.baddbmm(x[:1, :1, :1], asked, x.transpose(1, 2), beta=0, alpha=share)
        context.share, context.kinds = share, (regions.dtype, ask_bias.dtype)
        context.save_for_backward(x, ask, out, asking, telling, asked, answers, relations)
        return torch.baddbmm(out_bias.to(kind), relations, answers)

    @staticmethod
    @once_differentiable
    def backward(context: Any, above: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, ask, out, asking, telling, asked, answers, relations = context.saved_tensors
        of_regions, of_weights = context.kinds
        d, (theta, phi, told) = len(out), ask.chunk(3)
        of_relations = torch.baddbmm(
            relations, above, answers.transpose(1, 2), beta=0, alpha=context.share
        )
        of_answers = (relations.transpose(1, 2) @ above).flatten(0, 1)
        of_asked = (of_relations @ x).flatten(0, 1)
        of_x = (of_relations.transpose(1, 2) @ asked).flatten(0, 1)
        of_x.addmm_(of_asked, asking.T).addmm_(of_answers, telling)

        rows = x.flatten(0, 1)
        of_asking, of_telling = rows.T @ of_asked, of_answers.T @ rows
        of_ask = torch.empty_like(ask)
        for part, one, other in zip(
            of_ask.chunk(3), (phi, theta, out.T), (of_asking.T, of_asking, of_telling), strict=True
        ):
            torch.mm(one, other, out=part)
        return (
            of_x.view_as(x)[:, :, :d].to(of_regions),
            of_ask[:, :d].to(of_weights),
            of_ask[:, d].to(of_weights),
            (of_telling @ told.T).to(of_weights),
            above.sum((0, 1), dtype=of_weights),
            None,
        )


def _beside(x: Tensor, column: Tensor | None, kind: torch.dtype) -> Tensor:
    """Cast, and with one column more, of ones where none is given, and those of zeros."""
    d = x.shape[-1]
    whole = x.new_empty(*x.shape[:-1], d + _MORE, dtype=kind)
    whole[..., :d] = x
    whole[..., d:].zero_()
    if column is None:
        whole[..., d].fill_(1.0)
    else:
        whole[..., d] = column
    return whole
