"""Large batches on a GPU: tiles that Triton multiplies and weighs in one kernel (`kernels.py`).

Used where Triton is installed, the products are in bfloat16 or TF32, and the batch is worth a
compilation of a few seconds; everywhere else `both.PlainTiles` does the same.

All vectors have the same length, so the largest possible similarity is known. Where exponentials of
that are numbers, kernels need no maxima, and both directions share an exponential. A batch that is
one block then keeps what it has seen, exponentials or similarities, and makes them once.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives.both import Block, weigh_tiles
from simgrad.objectives.rows import Gradients, Work
from simgrad.objectives.streamed import Streamed, Summary
from simgrad.objectives.tiles import SHAPES, Shape, fitting

_LEAST = 2**25  # similarities that are worth a compilation
_MOST = 2**24  # images or texts: larger numbers are not exact in float32
_BLOCK = 2**29  # bytes of weights in a block
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
_WITH_WEIGHTS = ("hinge", "sigmoid", "softmax", "softmax-keep", "rank", "rank-keep")
# Exponents up to which nothing overflows or vanishes: the sum of 2**24 exponentials and its
# inverse; and, of a rank, the exponential of half of it.
_LARGEST = {"softmax": 64.0, "rank": 128.0, "hardest-exponential": 64.0}


def suits(work: Work, stream: Streamed) -> bool:
    """Whether this batch is one for the kernels."""
    pairs, x = work.pairs, work.used
    images, texts = pairs.i2t.queries, pairs.t2i.queries
    return (
        has_kernels(stream, x.dtype, x.device, images * texts)
        and max(images, texts) <= _MOST
        and pairs.t2i.one_each  # a text belongs to one image
        and pairs.i2t.query_present is None
        and gpu.ready(str(stream.tile), _call(work, stream))
    )


def has_kernels(
    stream: Streamed, kind: torch.dtype, device: torch.device, similarities: int
) -> bool:
    """Whether there are any for this rule, precision, device and size."""
    tf32 = kind == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"
    return (
        stream.tile is not None
        and device.type == "cuda"
        and similarities >= _LEAST
        and (kind == torch.bfloat16 or tf32)
        and gpu.installed()
        and gpu.capable(device)
    )


def _call(work: Work, stream: Streamed) -> Hashable:
    """What decides which kernels are compiled, and whether the host has to wait for the device."""
    x, pairs = work.used, work.pairs
    return (
        (stream.tile, *stream.constants(), work.scale if isinstance(work.scale, float) else None),
        (x.dtype, x.device, x.shape[1], work.bias is None, work.alone),
        (pairs.i2t.queries, pairs.t2i.queries, pairs.i2t.one_each),
    )


def weigh_fused(work: Work, stream: Streamed) -> Gradients | None:
    """The loss and its gradients; None if the kernels do not run here."""
    assert stream.tile is not None
    try:
        tiles = FusedTiles(work, stream)
        with torch.cuda.device(work.used.device):
            result = weigh_tiles(work, stream, tiles, work.pairs.i2t.blocks(tiles.size))
        if work.pairs.i2t.one_each:  # blocks of other batches are counted by the host
            gpu.ran(_call(work, stream))
        return result
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler may raise: the plain way still works
        gpu.give_up(stream.tile, str(work.objective), error)
        return None


class FusedTiles:
    """The tiles of a GPU."""

    def __init__(self, work: Work, stream: Streamed) -> None:
        assert stream.tile is not None
        self.work, self.stream, self.x, self.y = work, stream, work.images, work.texts
        self.images, self.texts = work.pairs.i2t.queries, work.pairs.t2i.queries
        self.precision = "bf16" if work.used.dtype == torch.bfloat16 else "tf32"
        self.first_rule, self.second_rule, self.count = _RULES[stream.tile]
        self.owner = work.pairs.t2i.candidate_of_pair.contiguous()
        self.bias = self.x if work.bias is None else self._of_kernels(work.bias)  # or not read
        self.steepness, self.closed = stream.constants()
        self.bounded = self._is_bounded()
        high = self._shape(self.first_rule).down
        rows = max(high, _BLOCK // (self.x.element_size() * self.texts)) // high * high
        self.size = rows * self.texts  # similarities in a block
        self.weights: Tensor | None = None  # of one block after the other
        whole = rows >= max(self.images, self.texts)  # the batch is one block
        # Similarities of a narrow sigmoid are kept only if they are not rounded.
        keeps = stream.tile == "softmax" or (stream.tile == "rank" and self.precision == "tf32")
        self.kept = keeps and self.bounded and whole
        if self.kept:
            self.first_rule, self.second_rule = f"{stream.tile}-keep", None

    def _of_kernels(self, bias: Tensor) -> Tensor:
        """A number of the host is filled in, not copied: a CUDA graph can hold that."""
        if bias.device == self.x.device:
            return bias.detach().to(torch.float32)
        return torch.full((), float(bias), dtype=torch.float32, device=self.x.device)

    def _is_bounded(self) -> bool:
        """Whether exponentials of all similarities are numbers. Rounding may add 1/256 to them."""
        scale, steepness, tile = self.work.scale, 1.0, str(self.stream.tile)
        if tile not in _LARGEST:
            return True
        if tile == "hardest-exponential":
            steepness = abs(self.steepness)
        if not isinstance(scale, float) or self.work.bias is not None:
            return False
        return steepness * scale <= _LARGEST[tile]

    def first(self, block: Block, before: Summary) -> tuple[Summary, Summary, Tensor | None]:
        start, stop, _ = block
        rule, count = self.first_rule, self.count
        if rule.startswith("hardest-"):
            self.bounded = self.bounded and before[0].stride(0) == 0  # one bound for all sets
        shape, rows, columns = self._shape(rule), stop - start, self.texts
        down, across = -(-rows // shape.down), -(-columns // shape.across)
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
        if self.kept:
            return self._weighed(_stacked(given))
        assert self.second_rule is not None
        # No summaries: not written.
        weights = self._launch(self.second_rule, block, given, self.x, self.x)
        assert weights is not None
        return weights

    def _shape(self, rule: str) -> Shape:
        return fitting(SHAPES[rule, self.precision], self.x)

    def _parts(self, count: int, tiles: int, queries: int) -> Tensor:
        return torch.empty(count, tiles, queries, dtype=torch.float32, device=self.x.device)

    def _merged(self, parts: Tensor, candidates: int) -> Summary:
        tile = self.stream.tile
        if tile == "softmax" and self.bounded:
            return (parts[0].sum(0).log_(),)
        if tile == "hardest-exponential" and self.bounded:
            parts[3].log_()
        summary = self.stream.merge(tuple(parts.unbind(0)))
        if not self.first_rule.startswith("hardest"):
            return summary
        # Among NaN a kernel may find the hardest beyond the edge; what is read there ends a process
        # before anybody can say what is wrong.
        where = summary[1].long().clamp_(max=candidates - 1)
        return (summary[0], where, *summary[2:])

    def _launch(
        self, rule: str, block: Block, given: Summary, by_row: Tensor, by_column: Tensor
    ) -> Tensor | None:
        """The weights, unless they are still to come."""

        from simgrad.objectives.kernels import tile

        start, stop, _ = block
        rows, columns, width = stop - start, self.texts, self.x.shape[1]
        shape, x, y = self._shape(rule), self.x[start:stop], self.y
        weights = self._room(rows) if rule in _WITH_WEIGHTS else None
        every = of_rows = of_columns = self.x  # not read
        if given:
            one_for_all = rule.startswith("hardest-") and self.bounded
            every = given[0][None] if one_for_all else _stacked(given)
            of_rows, of_columns = every[:, start:], every[:, self.images :]
        ratio = 0.0 if self.work.alone else float(self.work.ratio)
        programs = -(-rows // shape.down) * -(-columns // shape.across)
        launch: Any = tile[(programs,)]
        launch(
            *(_described(x, y, shape) if shape.described else (x, y)),
            self.owner, self.bias,
            of_rows, of_columns, by_row, by_column, x if weights is None else weights,
            start, rows, columns, width, every.stride(0), by_row.stride(1), by_column.stride(1),
            ratio, float(self.steepness),
            RULE=rule, CLOSED=self.closed, BIASED=self.work.bias is not None, BOUNDED=self.bounded,
            PRECISION="tf32", ALONE=self.work.alone, EVEN=width % shape.wide == 0,
            DESCRIBED=shape.described, DOWN=shape.down, ACROSS=shape.across, WIDE=shape.wide,
            GROUP=shape.group, num_warps=shape.warps,
            num_stages=shape.stages, maxnreg=shape.registers,
        )  # fmt: skip
        return None if self.kept else weights

    def _weighed(self, given: Tensor) -> Tensor:
        """What was kept of the whole batch, in place: its weights."""

        from simgrad.objectives import passes

        assert self.weights is not None
        down, across, ratio = 8, 512, float(self.work.ratio)
        kernel: Any = passes.normalise if self.stream.tile == "softmax" else passes.rank
        kernel[(-(-self.texts // across), -(-self.images // down))](
            self.weights, given, given[:, self.images :], given.stride(0), self.images, self.texts,
            ratio, DOWN=down, ACROSS=across, num_warps=4,
        )  # fmt: skip
        return self.weights

    def _room(self, rows: int) -> Tensor:
        """Memory for a block's weights, used again for the next one."""
        if self.weights is None or len(self.weights) < rows:
            self.weights = self.x.new_empty(rows, self.texts)
        return self.weights[:rows]


def _stacked(given: Summary) -> Tensor:
    return torch.stack(given) if len(given) > 1 else given[0].contiguous()[None]


def _described(x: Tensor, y: Tensor, shape: Shape) -> tuple[Any, Any]:
    """Descriptors of images and texts, from which hardware fetches tiles."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return (
        TensorDescriptor.from_tensor(x, [shape.down, shape.wide]),
        TensorDescriptor.from_tensor(y, [shape.across, shape.wide]),
    )
