"""Large batches on a GPU: tiles that one kernel multiplies, sums up and weighs (`kernel.py`).

Used where Triton is installed, the products are in bfloat16 or TF32, and the batch is worth a
compilation of a few seconds; everywhere else `tiles.py` does the same.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives.engine.forms import Elementwise, Vectors
from simgrad.objectives.engine.kernel import compiled, source
from simgrad.objectives.engine.launch import SMALL, Launch, Launcher, fitting
from simgrad.objectives.engine.merging import merged
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
from simgrad.objectives.engine.totals import Reduced, is_bounded, nothing
from simgrad.objectives.engine.work import Gradients, Work

# Tests run kernels of any size on a CPU, in Triton's interpreter (TRITON_INTERPRET=1).
INTERPRETED = False

_LEAST = 2**25  # similarities that are worth a compilation
_MOST = 2**24  # images or texts: larger numbers are not exact in float32
# Images of a block that is weighed, and bytes of its weights: as many texts, in half precision. The
# products with them then keep all processors of a large GPU busy.
_ROWS = 8192
_WEIGHTS = 128 * 2**20
_PARTS = 128 * 2**20  # bytes of what tiles add to totals


def suits(work: Work, family: Elementwise) -> bool:
    """Whether this batch on a GPU is one for the kernels."""
    pairs, x = work.pairs, work.vectors
    images, texts = pairs.i2t.queries, pairs.t2i.queries
    tf32 = x.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"
    there = (INTERPRETED and images * texts > 0) or (
        images * texts >= _LEAST
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
        self.one_sided, self.alone = False, True
        self.ready: tuple[Vectors, Shard, Launch] | None = None  # to weigh the next block
        self.sums = False
        self.shape = SMALL if INTERPRETED else fitting(self.x)
        self.launcher = Launcher(work, self.shape)

    def blocks(self, shard: Shard, weighing: bool) -> list[Block]:
        rows, columns = self.work.count, len(shard.texts)
        if not columns:  # of a process without a share
            return [] if weighing else [Block(*(slice(0, rows), slice(0, 0)) * 2)]
        if weighing:
            down = 3 * self.shape.down if INTERPRETED else _ROWS
            return _grid(rows, columns, down, self._wide(min(down, rows)))
        # All texts beside as many images as there is room for parts of totals.
        slots = sum(2 if kind == "max" else 1 for kind in self.family.totals)
        sides = 1 if self.one_sided else 2
        tiles = _PARTS // (4 * sides * slots * columns)
        down = 3 if INTERPRETED else max(1, tiles)
        if self.family.immediate:  # weights are made too
            down = min(down, _ROWS // self.shape.down)
        return _grid(rows, columns, down * self.shape.down, columns)

    def _wide(self, rows: int) -> int:
        """Texts beside so many images for whose weights there is room."""
        room = 2**8 if INTERPRETED else _WEIGHTS // self.x.element_size()
        return max(1, room // rows // self.shape.across) * self.shape.across

    def first(self, block: Block, rows: Lines, shard: Shard, add: Add) -> tuple[Reduced, Reduced]:
        """All texts of the shard beside some images; where weights are made too, in parts."""
        kinds, immediate = self.family.totals, self.family.immediate
        if not len(shard.texts):
            lines = (self.x.new_empty(n, dtype=torch.float32) for n in (rows.count, 0))
            of_rows, of_columns = (nothing(kinds, some) for some in lines)
            return of_rows, of_columns
        kernel, slots, self.sums = self._kernel(rows, shard, True, immediate)
        height, columns = (part.stop - part.start for part in block[:2])
        down, across = -(-height // self.shape.down), -(-columns // self.shape.across)
        by_row = self._parts(slots, across, height)
        by_column = self._parts(slots, 1 if self.one_sided else down, columns)
        if self.one_sided:
            by_column.zero_()
        launch = self.launcher.prepare(kernel, rows, shard, by_row, by_column)
        wide = self._wide(height) if immediate else columns
        for left in range(0, columns, wide):
            part = slice(left, min(left + wide, columns))
            some = Block(block.rows, part, block.rows, part)
            weights = self._room(some) if immediate else None
            launch(some, weights)
            if weights is not None:
                add(some, shard, weights)
        return (
            merged(by_row, kinds, self.sums, columns),
            merged(by_column, kinds, self.sums, height),
        )

    def second(self, block: Block, rows: Lines, shard: Shard) -> Tensor:
        if self.ready is None or self.ready[0] is not rows.told or self.ready[1] is not shard:
            kernel, _, _ = self._kernel(rows, shard, False, True)
            nothing = self.x.new_empty(1, 1, 1)
            self.ready = (
                rows.told,
                shard,
                self.launcher.prepare(kernel, rows, shard, nothing, nothing),
            )
        weights = self._room(block)
        self.ready[2](block, weights)
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
            if totals:
                biased = self.work.bias is not None
                sums = is_bounded(family, len(uniform), self.work.scale, biased)
                slots = print_totals(family, uniform, printer, sums, not self.one_sided)
            if weights:
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


def _grid(rows: int, columns: int, down: int, across: int) -> list[Block]:
    """Blocks of so many rows and columns."""
    found = []
    for top in range(0, rows, down):
        for left in range(0, columns, across):
            some = slice(top, min(top + down, rows)), slice(left, min(left + across, columns))
            found.append(Block(*some, *some))
    return found
