"""Large batches on a GPU: tiles that Triton multiplies and weighs in one kernel (`kernels.py`).

Used where Triton is installed, the products are in bfloat16 or TF32, and the batch is worth a
compilation of a few seconds; everywhere else `both.PlainTiles` does the same. A kernel that cannot
be compiled or started is said once, and not tried again.
"""

import importlib.util
import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.both import Block, weigh_tiles
from simgrad.objectives.rows import Gradients, Work
from simgrad.objectives.streamed import Streamed, Summary

_LEAST = 2**25  # similarities that are worth a compilation
_MOST = 2**24  # images or texts: larger numbers are not exact in float32
_BLOCK = 2**29  # bytes of weights in a block


class Shape(NamedTuple):
    """The shape of a tile and of the program that works it."""

    down: int
    across: int
    wide: int
    warps: int
    stages: int
    group: int = 8
    warps_of_light: int = 8


SHAPES = {
    torch.bfloat16: Shape(128, 128, 64, 8, 3, 16, 4),
    torch.float32: Shape(128, 128, 32, 8, 3),
}
# What a rule's kernels are called: of the first sweep, of the second, and how many summaries.
_RULES = {
    "softmax": ("softmax-summary", "softmax", 1),
    "rank": ("rank-summary", "rank", 2),
    "hinge": ("hinge", None, 2),
    "sigmoid": ("sigmoid", None, 2),
    "hardest": ("hardest", None, 2),
    "hardest-linear": ("hardest-linear", None, 4),
    "hardest-exponential": ("hardest-exponential", None, 4),
}
_WITH_WEIGHTS = ("hinge", "sigmoid", "softmax", "rank")
_LIGHT = ("softmax-summary", "hardest")  # a tile is little work: fewer warps do it faster
_broken: set[str] = set()


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def suits(work: Work, stream: Streamed) -> bool:
    """Whether this batch is one for the kernels."""
    pairs, x = work.pairs, work.used
    images, texts = pairs.i2t.queries, pairs.t2i.queries
    return (
        x.is_cuda
        and stream.tile is not None
        and stream.tile not in _broken
        and images * texts >= _LEAST
        and max(images, texts) <= _MOST
        and (x.dtype == torch.bfloat16 or _tf32(x))
        and pairs.t2i.one_each  # a text belongs to one image
        and pairs.i2t.query_present is None
        and _installed()
        and _capable(x.device)
        and not torch.cuda.is_current_stream_capturing()
    )


@cache
def _capable(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _tf32(x: Tensor) -> bool:
    return x.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"


def weigh_fused(work: Work, stream: Streamed) -> Gradients | None:
    """The loss and its gradients; None if the kernels do not run here."""
    assert stream.tile is not None
    try:
        tiles = FusedTiles(work, stream)
        with torch.cuda.device(work.used.device):
            return weigh_tiles(work, stream, tiles, work.pairs.i2t.blocks(tiles.size))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler may raise: the plain way still works
        _broken.add(stream.tile)
        warnings.warn(
            f"{work.objective}: its fused kernels do not run here ({str(error)[:200]}); it is "
            "worked without them, more slowly.",
            stacklevel=2,
        )
        return None


class FusedTiles:
    """The tiles of a GPU."""

    def __init__(self, work: Work, stream: Streamed) -> None:
        assert stream.tile is not None
        self.work, self.stream, self.x, self.y = work, stream, work.images, work.texts
        self.images, self.texts = work.pairs.i2t.queries, work.pairs.t2i.queries
        self.rules, self.shape = _RULES[stream.tile], SHAPES[work.used.dtype]
        self.bias = self.x  # not read
        if work.bias is not None:
            self.bias = work.bias.detach().to(self.x.device, torch.float32)
        rows = max(self.shape.down, _BLOCK // (self.x.element_size() * self.texts))
        self.size = rows // self.shape.down * self.shape.down * self.texts
        self.weights: Tensor | None = None  # of one block after the other

    def first(self, block: Block, before: Summary) -> tuple[Summary, Summary, Tensor | None]:
        start, stop, _ = block
        rule, _, count = self.rules
        rows, columns = stop - start, self.texts
        down, across = -(-rows // self.shape.down), -(-columns // self.shape.across)
        if rows == self.images == columns and down == across and not self.work.alone:
            # All queries are there, each in as many parts: they are merged together.
            parts = self._parts(count, across, rows + columns)
            weights = self._launch(rule, block, before, parts, parts[:, :, rows:])
            return self._merged(parts, columns), (), weights
        by_row = self._parts(count, across, rows)
        if self.work.alone:
            weights = self._launch(rule, block, before, by_row, by_row)
            return self._merged(by_row, columns), (), weights
        by_column = self._parts(count, down, columns)
        weights = self._launch(rule, block, before, by_row, by_column)
        return self._merged(by_row, columns), self._merged(by_column, self.images), weights

    def second(self, block: Block, given: Summary) -> Tensor:
        rule = self.rules[1]
        assert rule is not None
        weights = self._launch(rule, block, given, self.x, self.x)  # no summaries: not written
        assert weights is not None
        return weights

    def _parts(self, count: int, tiles: int, queries: int) -> Tensor:
        return torch.empty(count, tiles, queries, device=self.x.device)

    def _merged(self, parts: Tensor, candidates: int) -> Summary:
        summary = self.stream.merge(tuple(parts.unbind(0)))
        if not self.rules[0].startswith("hardest"):
            return summary
        # Among NaN a kernel may find the hardest beyond the edge; what is read there ends a process
        # before anybody can say what is wrong.
        where = summary[1].long().clamp_(max=candidates - 1)
        return (summary[0], where, *summary[2:])

    def _launch(
        self, rule: str, block: Block, given: Summary, by_row: Tensor, by_column: Tensor
    ) -> Tensor | None:
        from simgrad.objectives.kernels import tile

        start, stop, _ = block
        rows, columns, width = stop - start, self.texts, self.x.shape[1]
        down, across, wide, warps, stages, group, warps_of_light = self.shape
        weights = self._room(rows) if rule in _WITH_WEIGHTS else None
        every = of_rows = of_columns = self.x  # not read
        if given:
            every = torch.stack(given) if len(given) > 1 else given[0].contiguous()[None]
            of_rows, of_columns = every[:, start:], every[:, self.images :]
        steepness, closed = self.stream.constants()
        ratio = 0.0 if self.work.alone else float(self.work.ratio)
        launch: Any = tile[(-(-rows // down) * -(-columns // across),)]
        launch(
            self.x[start:stop], self.y, self.work.pairs.t2i.candidate_of_pair, self.bias,
            of_rows, of_columns, by_row, by_column, self.x if weights is None else weights,
            start, rows, columns, width, every.stride(0), by_row.stride(1), by_column.stride(1),
            ratio, float(steepness),
            RULE=rule, CLOSED=closed, BIASED=self.work.bias is not None, PRECISION="tf32",
            ALONE=self.work.alone, EVEN=width % wide == 0, DOWN=down, ACROSS=across,
            WIDE=wide, GROUP=group, num_warps=warps_of_light if rule in _LIGHT else warps,
            num_stages=stages,
        )  # fmt: skip
        return weights

    def _room(self, rows: int) -> Tensor:
        """Memory for a block's weights, used again for the next one."""
        if self.weights is None or len(self.weights) < rows:
            self.weights = self.x.new_empty(rows, self.texts)
        return self.weights[:rows]
