"""Large batches on a GPU: tiles that one kernel multiplies, sums up and weighs (`kernel.py`).

Used where Triton is installed, the products are in bfloat16 or TF32, and the batch is worth a
compilation of a few seconds; everywhere else `tiles.py` does the same.
"""

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives.engine.forms import Elementwise
from simgrad.objectives.engine.kernel import compiled, source
from simgrad.objectives.engine.passes import (
    Add,
    Block,
    Lines,
    Passing,
    Shard,
    expands,
    weigh_passes,
)
from simgrad.objectives.engine.printing import (
    Printer,
    Unprintable,
    print_totals,
    print_weights,
)
from simgrad.objectives.engine.shapes import SMALL, Shape, fitting
from simgrad.objectives.engine.totals import Reduced, is_bounded
from simgrad.objectives.engine.work import Factor, Gradients, Work

# Tests run kernels of any size on a CPU, in Triton's interpreter (TRITON_INTERPRET=1).
INTERPRETED = False
import os

ORDER = os.environ.get("ORDER", "totals")
_LEAST = 2**25  # similarities that are worth a compilation
_MOST = 2**24  # images or texts: larger numbers are not exact in float32
_ROWS = 8192  # images of a block that is weighed
_WEIGHTS = 80 * 2**20  # bytes of its weights
_PARTS = 64 * 2**20  # bytes of what tiles add to totals


def suits(work: Work, family: Elementwise) -> bool:
    """Whether this batch is one for the kernels."""
    pairs, x = work.pairs, work.vectors
    images, texts = pairs.i2t.queries, pairs.t2i.queries
    tf32 = x.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"
    there = INTERPRETED or (
        x.is_cuda
        and images * texts >= _LEAST
        and (x.dtype == torch.bfloat16 or tf32)
        and gpu.installed()
        and gpu.capable(x.device)
    )
    return (
        there
        and work.block is None
        and max(images, texts) <= _MOST
        and pairs.i2t.present is None
        and not expands(family, pairs.i2t)
        and not expands(family, pairs.t2i)
        and gpu.ready(_name(work), _call(work))
    )


def _name(work: Work) -> str:
    return f"objective {work.rule}"


def _call(work: Work) -> Hashable:
    """What decides which kernels are compiled, and whether the host has to wait for the device."""
    x, pairs = work.vectors, work.pairs
    return (
        (str(work.rule), work.scale if isinstance(work.scale, float) else None),
        (x.dtype, x.device, x.shape[1], work.bias is None),
        (pairs.i2t.queries, pairs.t2i.queries, pairs.order is None, pairs.i2t.ignored is None),
    )


def weigh(work: Work, family: Elementwise, passing: Passing) -> Gradients | None:
    """The loss and its gradients; None if the kernels do not run here."""
    try:
        tiles = FusedTiles(work, family)
        with torch.cuda.device_of(work.vectors):  # type: ignore[no-untyped-call]
            result = weigh_passes(work, family, tiles, passing)
        if work.pairs.order is None and work.pairs.i2t.ignored is None:  # others ask the host
            gpu.ran(_call(work))
        return result
    except torch.OutOfMemoryError:
        raise
    except Unprintable as error:
        if passing.alone:
            gpu.give_up(_name(work), str(work.rule), error)
            return None
        raise
    except Exception as error:  # whatever a compiler may raise: the plain way still works
        if not passing.alone or INTERPRETED:
            raise  # the other processes would wait for this one
        gpu.give_up(_name(work), str(work.rule), error)
        return None


_KEPT = 256  # kernels: with other parameters each time they would never end
_kernels: dict[Hashable, tuple[Any, int, bool]] = {}


class FusedTiles:
    """The tiles of a GPU."""

    def __init__(self, work: Work, family: Elementwise) -> None:
        self.work, self.family, self.x = work, family, work.vectors
        self.bound = work.scale if isinstance(work.scale, float) and work.bias is None else None
        self.room: Tensor | None = None  # for the weights of one block after the other
        self.one_sided = False
        self.sums = False
        pairs = work.pairs
        # A text that belongs to several images, or to none, is named by its pairs.
        self.owner = pairs.t2i.candidate.contiguous()
        self.apart = pairs.i2t.ignored
        if not pairs.t2i.one_each:
            self.owner = torch.full((pairs.t2i.queries,), -1, device=self.x.device)
            own = torch.stack([pairs.i2t.query, pairs.i2t.candidate], 1)
            self.apart = own if self.apart is None else torch.cat([own, self.apart])

    @cached_property
    def shape(self) -> Shape:
        return SMALL if INTERPRETED else fitting(self.x)

    def blocks(self, shard: Shard, weighing: bool) -> list[Block]:
        rows, columns = self.work.count, len(shard.texts)
        if weighing:
            down = 3 * self.shape.down if INTERPRETED else _ROWS
            return _grid(rows, columns, down, self._wide(min(down, rows)))
        # All texts beside as many images as there is room for parts of totals.
        slots = sum(2 if kind == "max" else 1 for kind in self.family.totals)
        tiles = _PARTS * self.shape.down // (8 * slots * max(1, columns)) // self.shape.down
        down = 3 if INTERPRETED else max(1, tiles)
        return _grid(rows, columns, down * self.shape.down, columns)

    def _wide(self, rows: int) -> int:
        """Texts beside so many images for whose weights there is room."""
        room = 2**8 if INTERPRETED else _WEIGHTS // self.x.element_size()
        return max(1, room // rows // self.shape.across) * self.shape.across

    def first(self, block: Block, rows: Lines, shard: Shard, add: Add) -> tuple[Reduced, Reduced]:
        """All texts of the shard beside some images; where weights are made too, in parts."""
        immediate = self.family.immediate
        kernel, slots, self.sums = self._kernel(rows, shard, True, immediate)
        height, columns = (part.stop - part.start for part in block[:2])
        down, across = -(-height // self.shape.down), -(-columns // self.shape.across)
        by_row = self._parts(slots, across, height)
        by_column = self._parts(slots, 1 if self.one_sided else down, columns)
        if self.one_sided:
            by_column.zero_()
        wide = self._wide(height) if immediate else columns
        for part in _grid(height, columns, height, wide):
            left = part.columns.start
            some = Block(block.rows, part.columns, block.rows, part.columns)
            parts = by_row[:, left // self.shape.across :], by_column[:, :, left:]
            weights = self._room(some) if immediate else None
            self._launch(kernel, some, rows, shard, *parts, weights)
            if weights is not None:
                add(some, shard, weights)
        return self._merged(by_row, columns), self._merged(by_column, height)

    def second(self, block: Block, rows: Lines, shard: Shard) -> Tensor:
        weights, nothing = self._room(block), self.x.new_empty(1, 1, 1)
        kernel, _, _ = self._kernel(rows, shard, False, True)
        self._launch(kernel, block, rows, shard, nothing, nothing, weights)
        return weights

    def _kernel(
        self, rows: Lines, shard: Shard, totals: bool, weights: bool
    ) -> tuple[Any, int, bool]:
        """The kernel, the slots of its totals, and whether exponentials are summed as they are."""
        family, bound = self.family, self.bound
        told = zip(rows.told, shard.lines.told, strict=True)
        uniform = tuple(a.stride(0) == b.stride(0) == 0 for a, b in told)
        key = type(family), family.settings(), bound, uniform, totals, weights, self.one_sided
        if key not in _kernels:
            printer, slots, sums = Printer(bound), 0, False
            if ORDER == "weights" and weights:
                print_weights(family, uniform, printer)
            if totals:
                biased = self.work.bias is not None
                sums = is_bounded(family, len(uniform), self.work.scale, biased)
                slots = print_totals(family, uniform, printer, sums, not self.one_sided)
            if ORDER != "weights" and weights:
                print_weights(family, uniform, printer)
            if len(_kernels) >= _KEPT:
                _kernels.clear()
            _kernels[key] = compiled(source(uniform, printer.lines)), slots, sums
        return _kernels[key]

    def _parts(self, slots: int, tiles: int, lines: int) -> Tensor:
        return torch.empty(slots, tiles, lines, dtype=torch.float32, device=self.x.device)

    def _room(self, block: Block) -> Tensor:
        """Memory for a block's weights, used again for the next one."""
        height, width = (part.stop - part.start for part in block[:2])
        if self.room is None or self.room.numel() < height * width:
            self.room = self.x.new_empty(height * width)
        return self.room[: height * width].view(height, width)

    def _merged(self, parts: Tensor, candidates: int) -> Reduced:
        """Parts of tiles to totals of a block."""
        totals: list[Tensor] = []
        where, slot = None, 0
        for kind in self.family.totals:
            part = parts[slot]
            if kind == "max":
                largest, tile = part.max(0, keepdim=True)
                totals.append(largest[0])
                # Among NaN a kernel may find the hardest beyond the edge; what is read there ends a
                # process before anybody can say what is wrong.
                place = parts[slot + 1].gather(0, tile)[0].long().clamp_(max=candidates - 1)
                where = place if where is None else where
            elif kind != "logsumexp":
                totals.append(part.sum(0))
            else:
                totals.append(part.sum(0).log_() if self.sums else part.logsumexp(0))
            slot += 2 if kind == "max" else 1
        return Reduced(tuple(totals), where)

    def _launch(
        self,
        kernel: Any,
        block: Block,
        rows: Lines,
        shard: Shard,
        by_row: Tensor,
        by_column: Tensor,
        weights: Tensor | None,
    ) -> None:
        work, shape = self.work, self.shape
        x, y = work.images[block.rows], shard.texts[block.columns]
        height, columns, width = len(x), len(y), x.shape[1]
        of_rows, of_columns = x, x  # not read
        if rows.told:
            of_rows = rows.stacked[:, block.rows]
            of_columns = shard.lines.stacked[:, block.columns]
        factors = [_factors(l.factor, part, x) for l, part in
                   ((rows, block.rows), (shard.lines, block.columns))]  # fmt: skip
        own = factors[0][1] is not None or factors[1][1] is not None
        vectors = [
            torch.full((count,), float(f), device=x.device) if own and v is None else v
            for (f, v), count in zip(factors, (height, columns), strict=True)
        ]
        apart, apart_from = self._apart(block) if shard.own else (None, None)
        programs = -(-height // shape.down) * -(-columns // shape.across)
        described, group = shape.described, shape.group if weights is not None else 16
        launch: Any = kernel[(programs,)]
        launch(
            *(_described(x, y, shape) if described else (x, y)),
            self.owner[block.columns] if shard.own else x,
            x if apart is None else apart, x if apart_from is None else apart_from,
            self._bias(), of_rows, of_columns,
            x if vectors[0] is None else vectors[0], x if vectors[1] is None else vectors[1],
            by_row, by_column, x if weights is None else weights,
            block.rows.start, height, columns, width,
            of_rows.stride(0), of_columns.stride(0), by_row.stride(1), by_column.stride(1),
            by_row.stride(0), by_column.stride(0),
            float(factors[0][0]), float(factors[1][0]),
            OWN=shard.own, APART=apart is not None, BIASED=work.bias is not None, FACTORS=own,
            PRECISION="tf32", EVEN=width % shape.wide == 0, DESCRIBED=described,
            DOWN=shape.down, ACROSS=shape.across, WIDE=shape.wide, GROUP=group,
            num_warps=shape.warps, num_stages=shape.stages,
        )  # fmt: skip

    def _bias(self) -> Tensor:
        """A number of the host is filled in, not copied: a CUDA graph can hold that."""
        bias = self.work.bias
        if bias is None:
            return self.x  # not read
        if bias.device == self.x.device:
            return bias.to(torch.float32)
        return torch.full((), float(bias), dtype=torch.float32, device=self.x.device)

    def _apart(self, block: Block) -> tuple[Tensor | None, Tensor | None]:
        """The pairs of a block that are no negatives, by tile."""
        if self.apart is None:
            return None, None
        row, column = self.apart[:, 0] - block.rows.start, self.apart[:, 1] - block.columns.start
        height, width = (part.stop - part.start for part in block[:2])
        here = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        row, column = row[here], column[here]
        tiles_down, tiles_across = -(-height // self.shape.down), -(-width // self.shape.across)
        tile = row // self.shape.down * tiles_across + column // self.shape.across
        tile, order = tile.sort()
        every = torch.arange(tiles_down * tiles_across + 1, device=row.device)
        starts = torch.searchsorted(tile, every).to(torch.int32)
        pairs = torch.stack([row, column], 1)[order].to(torch.int32).contiguous()
        return pairs, starts


def _grid(rows: int, columns: int, down: int, across: int) -> list[Block]:
    """Blocks of so many rows and columns."""
    found = []
    for top in range(0, rows, down):
        for left in range(0, columns, across):
            some = slice(top, min(top + down, rows)), slice(left, min(left + across, columns))
            found.append(Block(*some, *some))
    return found


def _factors(factor: Factor, some: slice, like: Tensor) -> tuple[Factor, Tensor | None]:
    """A number for all lines, or one for each."""
    if isinstance(factor, Tensor):
        each = factor[some] if factor.dim() else factor.expand(some.stop - some.start)
        return 1.0, each.to(torch.float32).contiguous()
    return factor, None


def _described(x: Tensor, y: Tensor, shape: Shape) -> tuple[Any, Any]:
    """Descriptors of images and texts, from which hardware fetches tiles."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return (
        TensorDescriptor.from_tensor(x, [shape.down, shape.wide]),
        TensorDescriptor.from_tensor(y, [shape.across, shape.wide]),
    )
