"""Cross attention between sets, for all pairs at once: what SCAN and BFAN compare by.

Every query vector looks at the vectors of a context set, and is scored by its cosine with what
it saw, v = sum_j w_j c_j. Two facts keep this cheap. The cosine needs no second product in the
embedding dimension: cos(q, v) = w·(cq) / (|q| sqrt(w (c cᵀ) w)), and c cᵀ is small. And it
does not change when w is scaled, so the softmax needs no denominator.

Products are laid out (contexts, context length, query length, queries): every sum then runs over
an outer axis, with the queries side by side in memory. Work goes block by block in fixed memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from simgrad.models.inputs import Encoded, tokens_of

# Arrays of a block's size that are alive at once: few while evaluating, more for a gradient.
_ALIVE, _ALIVE_TRAINING = 4, 10
# Exponents up to this need no maximum taken off first.
_SAFE = 20.0
# How products are normalised before the softmax over the context, by SCAN's own names.
RAW_NORMS = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
# Queries side by side in a block; on a CPU a block should stay near between the steps over it.
_QUERY_BLOCK, _QUERY_BLOCK_CPU = 512, 64
_NUMBERS_CPU = 1 << 22


@dataclass(frozen=True)
class CrossAttention:
    """How queries attend to a context, and how a set of cosines becomes one similarity."""

    smooth: float  # lambda 1, the inverse temperature of the attention
    norm: str = "clipped_l2norm"  # one of RAW_NORMS
    focal: str | None = None  # BFAN: drop the context below "equal" or "prob" relevance
    aggregate: str = "mean"  # lse, mean, max or sum over the queries of a set
    sharpness: float = 6.0  # lambda 2, of lse
    unit: bool = True  # whether all vectors have unit length

    def weights(self, products: Tensor, real: Tensor | None, shown: Tensor | None) -> Tensor:
        """(c, K, L, q) products -> attention over K, up to a factor for each query.

        `real` marks the context, (c, K); `shown` the queries, (L, q) or (c, L, q).
        """
        scores, largest = self._scores(products, shown)
        if largest > _SAFE:
            seen = scores if real is None else scores.masked_fill(~real[:, :, None, None], -1e4)
            scores = scores - seen.detach().amax(1, keepdim=True)
        weights = scores.exp_()
        if real is not None:
            weights = weights.masked_fill(~real[:, :, None, None], 0.0)
        return weights if self.focal is None else weights * self.kept(weights.detach(), real)

    def _scores(self, products: Tensor, shown: Tensor | None) -> tuple[Tensor, float]:
        """What the softmax over the context sees, and how large it can be."""
        clipped = F.leaky_relu(products, 0.1) if self.norm.startswith("clipped") else products
        if self.norm.endswith("l2norm"):
            length = clipped.square().sum(2, keepdim=True).clamp_min(1e-16).sqrt()
            return clipped * (self.smooth / length), self.smooth
        if self.norm == "softmax":
            if shown is not None:
                clipped = clipped.masked_fill(~shown.unsqueeze(-3), float("-inf"))
            return clipped.softmax(2) * self.smooth, self.smooth
        return clipped * self.smooth, self.smooth if self.unit else float("inf")

    def kept(self, weights: Tensor, real: Tensor | None) -> Tensor:
        """BFAN's mask: which of the context matters to each query; where nothing stands out
        (a context of one, say) all of it does, where the published code divides by zero."""
        if self.focal == "equal":
            count = weights.shape[1] if real is None else real.sum(1)[:, None, None, None]
            bar = weights.sum(1, keepdim=True) / count
        else:
            root = weights.sqrt()
            bar = (weights * root).sum(1, keepdim=True) / root.sum(1, keepdim=True)
        above = weights > bar
        return above | ~above.any(1, keepdim=True)

    def cosines(
        self,
        products: Tensor,
        gram: Tensor,
        real: Tensor | None,
        shown: Tensor | None,
        lengths: Tensor | None,
    ) -> Tensor:
        """Products (c, K, L, q) of contexts with queries, context with itself (c, K, K), lengths
        of queries that are not of unit length, (L, q) or (c, L, q) -> (c, L, q)."""
        weights = self.weights(products, real, shown)
        with torch.autocast(products.device.type, enabled=False):
            seen = (gram @ weights.flatten(2)).view_as(weights)
        # In place where no gradient needs the factors: memory traffic is what this costs.
        times = torch.mul if torch.is_grad_enabled() else Tensor.mul_
        norm = times(seen, weights).sum(1).clamp_min(1e-24).sqrt()
        cosines = times(products, weights).sum(1) / norm
        return cosines if lengths is None else cosines / lengths

    def lengths(self, queries: Tensor) -> Tensor | None:
        """Of queries (..., d), where they are not one."""
        return None if self.unit else queries.float().norm(dim=-1).clamp_min(1e-8)

    def collect(self, cosines: Tensor, real: Tensor | None) -> Tensor:
        """(c, L, q) cosines, (L, q) or (c, L, q) mask -> (c, q) similarities."""
        if self.aggregate == "max":
            shown = cosines if real is None else cosines.masked_fill(~real, -2.0)
            return shown.amax(1)
        if self.aggregate == "lse":
            scaled = cosines * self.sharpness
            scaled = scaled if real is None else scaled.masked_fill(~real, float("-inf"))
            return scaled.logsumexp(1) / self.sharpness
        total = cosines.sum(1) if real is None else (cosines * real).sum(1)
        if self.aggregate == "sum":
            return total
        return total / (cosines.shape[1] if real is None else real.sum(-2))

    def block(
        self, context: Tensor, context_real: Tensor | None, queries: Tensor, real: Tensor | None
    ) -> Tensor:
        """Contexts (c, K, d) and queries (L, q, d) -> (c, q)."""
        return self.compare(context, gram_of(context), context_real, queries, real)

    def compare(
        self,
        context: Tensor,
        gram: Tensor,
        context_real: Tensor | None,
        queries: Tensor,
        real: Tensor | None,
    ) -> Tensor:
        """The same, where the products of the context with itself are known."""
        products = context.flatten(0, 1) @ queries.flatten(0, 1).T
        products = products.float().view(*context.shape[:2], *queries.shape[:2])
        lengths = self.lengths(queries)
        return self.collect(self.cosines(products, gram, context_real, real, lengths), real)


def gram_of(context: Tensor) -> Tensor:
    """(c, K, d) -> (c, K, K): a set's products with itself, in full precision."""
    with torch.autocast(context.device.type, enabled=False):
        context = context.float()
        return context @ context.transpose(1, 2)


def attend_pairs(context: Encoded, queries: Encoded, how: CrossAttention) -> Tensor:
    """(n,): set k of the context with set k of the queries alone."""
    tokens = tokens_of(context)
    products = (tokens @ tokens_of(queries).transpose(1, 2)).float()[..., None]  # (n, K, L, 1)
    real = None if queries.mask is None else queries.mask[:, :, None]
    lengths = how.lengths(tokens_of(queries)[:, :, None])  # (n, L, 1)
    cosines = how.cosines(products, gram_of(tokens), context.mask, real, lengths)
    return how.collect(cosines, real).squeeze(1)


def attend(context: Encoded, queries: Encoded, how: CrossAttention, *, memory_mib: int) -> Tensor:
    """Similarities (contexts, queries) of every pair of sets."""
    numbers = memory_mib * 2**20 // 4 // (_ALIVE_TRAINING if torch.is_grad_enabled() else _ALIVE)
    on_gpu = tokens_of(context).is_cuda
    whole = on_gpu and _numbers(context, queries) <= numbers
    if torch.is_grad_enabled() or whole or (on_gpu and torch.cuda.is_current_stream_capturing()):
        return _attend_as_they_come(context, queries, how, numbers)
    query_block = _QUERY_BLOCK
    if not on_gpu:
        numbers, query_block = min(numbers, _NUMBERS_CPU), _QUERY_BLOCK_CPU
    result = tokens_of(context).new_empty(len(context), len(queries), dtype=torch.float32)
    wide = min(query_block, max(1, len(queries)))
    one = tokens_of(context).shape[1] * tokens_of(queries).shape[1] * wide
    pieces = [
        (rows, tokens, gram_of(tokens), real)
        for rows, tokens, real in _pieces(context, max(1, numbers // max(1, one)))
    ]
    for query_rows, query_tokens, query_real in _pieces(queries, query_block):
        turned = query_tokens.transpose(0, 1).contiguous()
        turned_real = None if query_real is None else query_real.T
        for rows, tokens, gram, real in pieces:
            similarities = how.compare(tokens, gram, real, turned, turned_real)
            result[rows[:, None], query_rows] = similarities
    return result


def _numbers(context: Encoded, queries: Encoded) -> int:
    """Of an array over all pairs of all their vectors."""
    return tokens_of(context).shape[:2].numel() * tokens_of(queries).shape[:2].numel()


def _attend_as_they_come(
    context: Encoded, queries: Encoded, how: CrossAttention, numbers: int
) -> Tensor:
    """Without asking the host how long anything is: in one piece if it is not too large, else in
    blocks of contexts, which a gradient computes again on its way back."""
    tokens, real = tokens_of(context), context.mask
    turned = tokens_of(queries).transpose(0, 1)
    turned_real = None if queries.mask is None else queries.mask.T
    if _numbers(context, queries) <= numbers:
        return how.block(tokens, real, turned, turned_real)
    size = max(1, numbers // max(1, tokens.shape[1] * turned.shape[:2].numel()))
    parts = []
    for start in range(0, len(tokens), size):
        some = slice(start, start + size)
        block = (tokens[some], None if real is None else real[some], turned, turned_real)
        parts.append(checkpoint(how.block, *block, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(parts)


def _pieces(encoded: Encoded, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Rows, tokens and mask of a few sets at a time; sets of like length together, so that
    little is spent on padding."""
    tokens, mask = tokens_of(encoded), encoded.mask
    order = torch.arange(len(tokens), device=tokens.device)
    if mask is not None:
        position = torch.arange(1, mask.shape[1] + 1, device=mask.device)
        lengths = (mask * position).amax(1)
        order = lengths.argsort(stable=True)
        sizes = lengths[order].tolist()
    for start in range(0, len(tokens), size):
        rows = order[start : start + size]
        if mask is None:
            yield rows, tokens[start : start + size], None
            continue
        longest = max(1, sizes[start + len(rows) - 1])
        shortest = sizes[start]
        part = mask[rows, :longest]
        # Without padding there is nothing to mask.
        full = shortest == longest and bool(part.all())
        yield rows, tokens[rows, :longest], None if full else part
