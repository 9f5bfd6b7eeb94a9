"""Exact search among unit vectors, in two passes over memory instead of one where that is quicker.

A query reads every vector once, so its time is that of reading memory. Large sets are therefore
read in half precision first, which costs half; whatever could still be among the best, given the
rounding, is scored again in float32. The answer is that of the plain product.
"""

import torch
from torch import Tensor

Ranked = list[tuple[int, float]]  # (row, score), best first

_BLOCK = 1 << 16  # vectors scored at a time: a memory-mapped set need not fit in memory
_HALVES = 1 << 23  # numbers from which a copy in half precision pays
_MOST = 1 << 31  # numbers beyond which the copy would take too much memory
# Rounding of both vectors and of the sum: at most 3 * 2**-11 for unit vectors, doubled for safety.
_ROUNDING = 6 * 2**-11


def best(scores: Tensor, top: int) -> Ranked:
    """The highest scores, ties by row, so that the same search gives the same answer."""
    top = min(top, len(scores))
    if top < 1:
        return []
    # All that share the last place compete for it.
    threshold = torch.topk(scores, top).values[-1]
    rows = torch.nonzero(scores >= threshold).flatten()
    rows = rows[torch.argsort(scores[rows], descending=True, stable=True)[:top]]
    return list(zip(rows.tolist(), scores[rows].tolist(), strict=True))


def product(vectors: Tensor, query: Tensor) -> Tensor:
    """(n, d) and (d,) to (n,), a block at a time."""
    scores = torch.empty(len(vectors))
    for start in range(0, len(vectors), _BLOCK):
        piece = slice(start, start + _BLOCK)
        scores[piece] = torch.mv(vectors[piece].float(), query)
    return scores


class Exact:
    """Unit vectors that can be searched."""

    def __init__(self, vectors: Tensor, halves: bool | None = None) -> None:
        self.vectors = vectors  # (n, d)
        if halves is None:
            halves = _HALVES <= vectors.numel() <= _MOST
        self._halves = vectors.half() if halves else None
        if self._halves is not None and not self._sound():
            self._halves = None

    def search(self, query: Tensor, top: int) -> Ranked:
        """The vectors nearest to one of (d,)."""
        query = query.float()
        rows = self._contenders(query, top)
        if rows is None:
            return best(product(self.vectors, query), top)
        return [(int(rows[i]), s) for i, s in best(product(self.vectors[rows], query), top)]

    def _contenders(self, query: Tensor, top: int) -> Tensor | None:
        """Rows that may be among the best; None: too many to be worth a second look."""
        if self._halves is None or not 0 < top < len(self.vectors):
            return None
        rough = torch.mv(self._halves, query.half())
        threshold = torch.topk(rough, top).values[-1].float() - 2 * _ROUNDING
        rows = torch.nonzero(rough >= threshold.to(rough.dtype)).flatten()
        return rows if len(rows) <= len(self.vectors) // 8 else None

    def _sound(self) -> bool:
        """Whether this machine's half-precision product rounds as little as is counted on."""
        assert self._halves is not None
        some = torch.linspace(0, len(self.vectors) - 1, 512).long()
        for row in (0, len(self.vectors) // 2):
            query = self.vectors[row].float()
            difference = torch.mv(self._halves[some], query.half()).float() - product(
                self.vectors[some], query
            )
            if not difference.abs().max() < _ROUNDING / 2:
                return False
        return True
