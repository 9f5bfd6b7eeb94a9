"""The generalised pooling operator: a learnt mean over sorted values.

Values of a set are sorted within each dimension, and a small two-way GRU over the ranks says how
much each rank counts. The weights depend on the size of the set alone, so they are computed once
for each possible size, or once for each set where there are fewer of those.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.models.layers import BiGru, valid
from simgrad.models.pooling import pool_sorted

_TEMPERATURE = 0.1
# Ranks whose codes are kept ready; larger sets are rare.
_RANKS = 1024


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

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        n, k, _ = features.shape
        if mask is None:
            weights = self.weights(torch.full((1,), k, device=features.device), k)
        elif n <= k:
            weights = self.weights(mask.sum(1), k)
        else:
            every = torch.arange(k + 1, device=features.device).clamp_min_(1)
            # An embedding's gradient takes one kernel, an index's a sort.
            weights = F.embedding(mask.sum(1), self.weights(every, k))
        return pool_sorted(features, mask, weights)

    def weights(self, sizes: Tensor, k: int) -> Tensor:
        """How much each of k ranks counts in sets of these sizes: (sets, k), rows sum to 1."""
        codes = self._rank_codes(k).expand(len(sizes), -1, -1)
        # Half precision would save nothing here: casts take longer than so small a network.
        with torch.autocast(codes.device.type, enabled=False):
            scores = self.linear(self.gru(codes, sizes)).squeeze(-1)
        scores = scores.masked_fill(~valid(sizes, k), float("-inf"))
        return torch.softmax(scores / _TEMPERATURE, dim=1)

    def _rank_codes(self, k: int) -> Tensor:
        codes = self.get_buffer("codes")
        return codes[:k] if k <= _RANKS else rank_code(k, self.code).to(codes)
