"""Parts of VSE-infinity: its pooling, and its size augmentation.

The generalised pooling operator (GPO) is a learnt mean over sorted values.

Values of a set are sorted within each dimension, and a small two-way GRU over the ranks says how
much each rank counts. The weights depend on the size of the set alone, so they are computed once
for each possible size; for each set where sets are large.

Size augmentation makes sets of random size while training, so that pooling learns every size. All
of it is drawn and applied on the device, in fixed shapes, so that a training step can be captured
as a CUDA graph.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.models.networks.layers import BiGru, turned, valid
from simgrad.models.networks.pooling import pool_sorted
from simgrad.models.networks.recurrent import gru_states

_TEMPERATURE = 0.1
# Ranks whose codes are kept ready; larger sets are rare.
_RANKS = 1024
# Sets up to this size are read from their end by indices that are kept ready: all that does not
# depend on weights is there before the first step.
_TURNED = 64


def rank_code(ranks: int, dimension: int) -> Tensor:
    """(ranks, dimension): sines and cosines, interleaved."""
    frequency = torch.exp(torch.arange(0, dimension, 2) * (-math.log(10000.0) / dimension))
    angle = torch.arange(ranks)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class Gpo(nn.Module):
    """Sets (n, k, d) -> vectors (n, d)."""

    def __init__(self, code: int = 32, hidden: int = 32) -> None:
        super().__init__()
        self.code = code
        self.gru = BiGru(code, hidden)
        self.linear = nn.Linear(hidden, 1, bias=False)
        # On the device from the start: a copy from the host cannot be captured in a CUDA graph.
        self.register_buffer("codes", rank_code(_RANKS, code), persistent=False)
        sizes = torch.arange(_TURNED + 1).clamp_min(1)  # there are no empty sets
        turn = turned(sizes, _TURNED)
        self.register_buffer("turn", turn, persistent=False)
        self.register_buffer("turned_codes", rank_code(_TURNED, code)[turn], persistent=False)
        self.register_buffer("absent", ~valid(sizes, _TURNED), persistent=False)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        k = features.shape[1]
        if mask is None:
            weights = self.weights(torch.full((1,), k, device=features.device), k)
        elif k <= _TURNED:
            # An embedding's gradient takes one kernel, an index's a sort.
            weights = F.embedding(mask.sum(1), self.weights_of_all(k))
        else:
            weights = self.weights(mask.sum(1), k)
        return pool_sorted(features, mask, weights)

    def weights(self, sizes: Tensor, k: int) -> Tensor:
        """How much each of k ranks counts in sets of these sizes: (sets, k), rows sum to 1."""
        codes = self._rank_codes(k).expand(len(sizes), -1, -1)
        # Half precision would save nothing here: casts take longer than so small a network.
        with torch.autocast(codes.device.type, enabled=False):
            scores = self.linear(self.gru(codes, sizes)).squeeze(-1)
        return _softmax(scores, ~valid(sizes, k))

    def weights_of_all(self, k: int) -> Tensor:
        """The same for sets of every size up to k: (k + 1, k), the first row without a meaning."""
        turn, back, absent = (
            self.get_buffer(name)[: k + 1, :k] for name in ("turn", "turned_codes", "absent")
        )
        with torch.autocast(back.device.type, enabled=False):
            # From the front, sets of every size look the same.
            onward = self.linear(gru_states(self.gru.onward, self._rank_codes(k)[None])).squeeze(-1)
            backward = self.linear(gru_states(self.gru.backward_, back)).squeeze(-1)
            scores = (onward + backward.gather(1, turn)) / 2
        return _softmax(scores, absent)

    def _rank_codes(self, k: int) -> Tensor:
        codes = self.get_buffer("codes")
        return codes[:k] if k <= _RANKS else rank_code(k, self.code).to(codes)


def _softmax(scores: Tensor, absent: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(absent, float("-inf")) / _TEMPERATURE, dim=1)


def keep_regions(n: int, k: int, rate: float, device: torch.device) -> Tensor:
    """(n, k) mask: each region is dropped with this rate, never all of an image's."""
    draw = torch.rand(n, k, device=device)
    return draw >= draw.amax(1, keepdim=True).clamp_max(rate)


def keep_cells(n: int, k: int, rate: float, device: torch.device) -> Tensor:
    """(n, k) mask for grids: a rate for each image, `rate` times a uniform draw u, if u > rate."""
    share = torch.rand(n, 1, device=device)
    dropped = torch.where(share > rate, share * rate, torch.zeros_like(share))
    draw = torch.rand(n, k, device=device)
    return draw >= torch.minimum(dropped, draw.amax(1, keepdim=True))


def change_words(
    tokens: Tensor,
    lengths: Tensor,
    *,
    rate: float,
    mask_token: int,
    words: int,
    continues: Tensor | None,
    whole: bool,
) -> tuple[Tensor, Tensor]:
    """Hide half of the words selected with this rate, replace a tenth, delete the rest.

    `continues` marks the word pieces that continue a word: they share its fate. `whole` keeps
    the first and the last token, which are no words. Returns new tokens and lengths.
    """
    m, longest = tokens.shape
    place = torch.arange(longest, device=tokens.device).expand(m, longest)
    draw = torch.rand(m, longest, device=tokens.device)
    if continues is not None:
        first = torch.where(continues[tokens], torch.zeros_like(place), place).cummax(1).values
        draw = draw.gather(1, first)
    real = valid(lengths, longest)
    if whole:
        draw = torch.where((place == 0) | (place == lengths[:, None] - 1), 1.0, draw)
    other = torch.randint(1, words, (m, longest), device=tokens.device)
    changed = torch.where(draw < 0.6 * rate, other, tokens)
    changed = torch.where(draw < 0.5 * rate, torch.full_like(tokens, mask_token), changed)
    kept = ((draw >= rate) | (draw < 0.6 * rate)) & real
    # A caption of which nothing is left keeps its first word.
    kept[:, 0] |= ~kept.any(1)
    # A word goes where its number among those kept says, what is deleted to a place before.
    number = kept.cumsum(1)
    packed = tokens.new_zeros(m, longest + 1).scatter_(1, number * kept, changed)
    return packed[:, 1:], number[:, -1]
