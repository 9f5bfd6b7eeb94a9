"""Candidates that were chosen in half precision, scored again in float32 and sorted.

Putting the vectors of all candidates beside each other costs more than the product that found
them: 300 candidates of 566,000 captions are 750 GB, written and read again. A kernel reads each
vector once; it is compiled where there are enough of them.
"""

from typing import Any

import torch
from torch import Tensor

from simgrad.core import gpu

# Tests run the kernel on a CPU, in Triton's interpreter (TRITON_INTERPRET=1).
INTERPRETED = False

_KERNEL = "simgrad.mining.rescoring_kernel"
_LEAST = 2**28  # numbers to read that are worth a compilation
_MANY, _WIDE = 16, 256  # candidates, and numbers of each, that a program reads at a time
_TOGETHER = 2**28  # numbers that are put beside each other without the kernel


def score_again(
    queries: Tensor, candidates: Tensor, coarse: Tensor, where: Tensor, ceiling: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The scores in float32, sorted, and their places; what is above the ceiling goes."""
    where = where.clamp(max=len(candidates) - 1)  # padding is marked by its score
    values = _by_kernel(queries, candidates, where)
    if values is None:
        values = _put_together(queries, candidates, where)
    values.masked_fill_(coarse == -torch.inf, -torch.inf)
    if ceiling is not None:
        values.masked_fill_(values > ceiling[:, None], -torch.inf)
    values, order = values.sort(1, descending=True)
    return values, where.gather(1, order)


def _put_together(queries: Tensor, candidates: Tensor, where: Tensor) -> Tensor:
    values = torch.empty(where.shape, dtype=torch.float32, device=where.device)
    step = max(1, _TOGETHER // (where.shape[1] * candidates.shape[1]))
    for a in range(0, len(queries), step):
        chosen = candidates[where[a : a + step]]  # (rows, keep, d)
        values[a : a + step] = torch.einsum("rkd,rd->rk", chosen, queries[a : a + step])
    return values


def _by_kernel(queries: Tensor, candidates: Tensor, where: Tensor) -> Tensor | None:
    """None where there is no kernel, or too little for it to do."""
    rows, keep = where.shape
    size = queries.shape[1]
    call = (_KERNEL, str(queries.device), size % 16 == 0)
    there = INTERPRETED or (
        queries.is_cuda
        and rows * keep * size >= _LEAST
        and gpu.capable(queries.device)
        and gpu.ready(_KERNEL, call)
    )
    if not there:
        return None
    queries, candidates, where = (e.contiguous() for e in (queries, candidates, where))
    values = torch.empty(where.shape, dtype=torch.float32, device=where.device)
    launch: Any = gpu.kernels(_KERNEL).score[(rows, -(-keep // _MANY))]
    try:
        # Triton starts kernels on the current device.
        with torch.cuda.device_of(queries):  # type: ignore[no-untyped-call]
            launch(queries, candidates, where, values, keep, size, MANY=_MANY, WIDE=_WIDE)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler may raise: there is another way
        if INTERPRETED:
            raise
        gpu.give_up(_KERNEL, "mining", error)
        return None
    gpu.ran(call)
    return values
