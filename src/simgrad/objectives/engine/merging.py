"""Parts of totals, one for each tile, to totals of a block: one kernel for all kinds of them.

With PyTorch's operations that took thirty small kernels a block, one after the other.
"""

import textwrap
from functools import cache
from typing import Any

import torch
from torch import Tensor

from simgrad.objectives.engine.kernel import compiled
from simgrad.objectives.engine.totals import Reduced

_HEAD = """
import triton
import triton.language as tl

@triton.jit(do_not_specialize=["tiles", "lines", "candidates"])
def kernel(
    parts,  # (slots, tiles, lines)
    totals,  # (kinds, lines)
    where,  # (lines,) of the first `max`
    tiles,
    lines,
    candidates,
    TILES: tl.constexpr,
    LINES: tl.constexpr,
):
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    there = line < lines
    slot = tiles.to(tl.int64) * lines
"""
_LOOP = """
    for first in range(0, tiles, TILES):
        tile = first + tl.arange(0, TILES)
        at = parts + tile.to(tl.int64)[:, None] * lines + line[None, :]
        read = (tile < tiles)[:, None] & there[None, :]
"""
# By kind: what is there before a tile, what a tile does, and the total; `{k}` is the slot.
_SUM = (
    "a{k} = tl.zeros((TILES, LINES), tl.float32)",
    "a{k} += tl.load(at + {k} * slot, mask=read, other=0.0)",
    "tl.sum(a{k}, 0)",
)
_LOG_OF_SUM = (*_SUM[:2], "tl.log(tl.sum(a{k}, 0))")
_LOG_SUM_EXP = (
    """
a{k} = tl.full((TILES, LINES), -float("inf"), tl.float32)
e{k} = tl.zeros((TILES, LINES), tl.float32)""",
    """
p{k} = tl.load(at + {k} * slot, mask=read, other=-float("inf"))
n{k} = tl.maximum(a{k}, p{k})
b{k} = tl.where(n{k} == -float("inf"), 0.0, n{k})
e{k} = e{k} * exp(a{k} - b{k}) + exp(p{k} - b{k})
a{k} = n{k}""",
    "log_of_sums(a{k}, e{k})",
)
# Of what is largest, the first number.
_MAX = (
    """
a{k} = tl.full((TILES, LINES), -float("inf"), tl.float32)
w{k} = tl.full((TILES, LINES), 2.0**30, tl.float32)""",
    """
p{k} = tl.load(at + {k} * slot, mask=read, other=-float("inf"))
q{k} = tl.load(at + ({k} + 1) * slot, mask=read, other=2.0**30)
w{k} = tl.where(p{k} > a{k}, q{k}, w{k})
a{k} = tl.maximum(a{k}, p{k})""",
    "tl.max(a{k}, 0)",
)
# Among NaN, or where there is no candidate, the hardest may lie beyond the edge; what is read there
# ends a process before anybody can say what is wrong.
_WHERE = """
m{k} = tl.max(a{k}, 0)
w = tl.min(tl.where(a{k} == m{k}[None, :], w{k}, 2.0**30), 0)
tl.store(where + line, tl.minimum(w.to(tl.int32), candidates - 1).to(tl.int64), mask=there)"""


def merged(parts: Tensor, kinds: tuple[str, ...], sums: bool, candidates: int) -> Reduced:
    """(slots, tiles, lines) to totals; `sums`: of exponentials, their logarithms are wanted."""
    tiles, lines = parts.shape[1:]
    totals = torch.empty(len(kinds), lines, dtype=torch.float32, device=parts.device)
    where = None
    if "max" in kinds:
        where = torch.empty(lines, dtype=torch.long, device=parts.device)
    # Few lines have many tiles each: then more of those are read together.
    high, wide = (64, 32) if tiles >= 256 else (16, 64)
    _kernel(kinds, sums)[(-(-lines // wide),)](
        parts, totals, parts if where is None else where, tiles, lines, candidates,
        TILES=high, LINES=wide, num_warps=4,
    )  # fmt: skip
    return Reduced(tuple(totals), where)


@cache
def _kernel(kinds: tuple[str, ...], sums: bool) -> Any:
    ways = {
        "sum": _SUM, "count": _SUM, "max": _MAX, "logsumexp": _LOG_OF_SUM if sums else _LOG_SUM_EXP
    }  # fmt: skip
    before, within, after, slot, found = [], [], [], 0, False
    for number, kind in enumerate(kinds):
        start, step, total = (part.format(k=slot) for part in ways[kind])
        before.append(start)
        within.append(step)
        after.append(f"tl.store(totals + {number} * lines + line, {total}, mask=there)")
        if kind == "max" and not found:
            after.append(_WHERE.format(k=slot))
            found = True
        slot += 2 if kind == "max" else 1
    text = _HEAD + textwrap.indent("\n".join(before), "    ") + "\n"
    text += _LOOP + textwrap.indent("\n".join(within), "        ") + "\n"
    text += textwrap.indent("\n".join(after), "    ") + "\n"
    return compiled(text)
