"""Ranks by counting, both directions over one matrix product, never a sort.

1. A block of image rows is multiplied with all captions. The scores of the true pairs are
   read from that very block and then blanked out (NaN compares false with everything), so
   nothing can outrank itself, and an image's other captions are no rivals of each other.
2. Image -> caption: all rivals are in the row. Count, per true pair, those with at least its
   score. At least, not more: a tie counts against us.
3. Caption -> image: the rivals of a caption are spread over all blocks, while its own score
   is in one of them. A guess of that score (a plain dot product) goes ahead. Rivals above the
   guess by more than rounding are counted at once; the few within rounding are remembered and
   judged in the end, by the score that the block gave. If a guess was off, or too many rivals
   are too close to call, the blocks are made again, now with the scores known.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.evaluation.scores import Scores

# Undecided rivals kept before counting again is cheaper: 12 bytes each.
_UNDECIDED = 4_000_000
# Rows that are counted together on a CPU; at most 255, or bytes would overflow.
_STRIP = 64


@dataclass(frozen=True)
class Counts:
    """What one pass over the similarities yields; everything else follows from it."""

    own: Tensor  # (captions,) score of each caption with its own image
    i2t: Tensor  # (captions,) captions of other images that its image scores at least as high
    t2i: Tensor  # (captions,) other images that the caption scores at least as high
    i2t_tied: Tensor  # (images,) of the rivals of its best caption, those with an equal score
    t2i_tied: Tensor  # (captions,) of its rivals, those with an equal score


@torch.no_grad()
def count(scores: Scores, image_of_caption: Tensor, rows: int | None = None) -> Counts:
    """Count the rivals of every true pair, in both directions; `rows` images at a time."""
    state = _Rows(image_of_caption, torch.arange(scores.num_captions), scores.num_images)
    guess = scores.guess_own(image_of_caption)
    columns = None if guess is None else _Columns(*guess)

    def both(block: Tensor, start: int, mask: "Mask") -> None:
        state.count(block, state.blank_own(block, start), start, mask)
        if columns is not None:
            columns.count(block, mask)

    _over_strips(scores, rows, state, both)
    if columns is None or not columns.settle(state.own):
        columns = again = _Columns(state.own, None)

        def columns_only(block: Tensor, start: int, mask: "Mask") -> None:
            state.blank_own(block, start)
            again.count(block, mask)

        _over_strips(scores, rows, state, columns_only)
    return Counts(state.own, state.rivals, columns.rivals, state.tied, columns.tied)


@torch.no_grad()
def count_rows(scores: Scores, query: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
    """For true pairs of any pattern: their scores, and the rivals each has in its row."""
    state = _Rows(query, candidate, scores.num_images)

    def work(block: Tensor, start: int, mask: "Mask") -> None:
        state.count(block, state.blank_own(block, start), start, mask)

    _over_strips(scores, None, state, work)
    return state.own, state.rivals


Work = Callable[[Tensor, int, "Mask"], None]


def _over_strips(scores: Scores, rows: int | None, state: "_Rows", work: Work) -> None:
    """Do the work on every block: on a GPU at once, on a CPU in strips, one thread per core.

    A strip stays in a core's cache while it is counted. Threads, because numpy lets go of the
    interpreter while it compares.
    """
    threads = torch.get_num_threads()
    masks: SimpleQueue[Mask] = SimpleQueue()
    with ThreadPoolExecutor(threads) as pool:
        for start, stop, block in scores.blocks(rows):
            on_cpu = block.device.type == "cpu"
            if start == 0:
                state.start(block)
                for _ in range(threads):
                    masks.put(Mask(block[:_STRIP]))

            def strip(first: int, start: int = start, block: Tensor = block) -> None:
                mask = masks.get()
                with torch.no_grad():  # a setting of each thread
                    work(block[first - start : first - start + _STRIP], first, mask)
                masks.put(mask)

            if not on_cpu:
                work(block, start, Mask(block))
            elif threads == 1:
                for first in range(start, stop, _STRIP):
                    strip(first)
            else:
                list(pool.map(strip, range(start, stop, _STRIP)))


class _Rows:
    """The rivals of true pairs (row, column) within their rows."""

    own: Tensor  # (pairs,) scores, as the blocks gave them

    def __init__(self, row: Tensor, column: Tensor, num_rows: int) -> None:
        self.row, self.column = row, column
        self.order = torch.argsort(row, stable=True)
        sizes = torch.bincount(row, minlength=num_rows)
        begin = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        self.offsets = begin.tolist()
        # The how-manieth pair of its row each pair is.
        self.turn = torch.zeros_like(row)
        self.turn[self.order] = torch.arange(len(row)) - begin[row[self.order]]
        self.rivals = torch.zeros_like(row)
        self.tied = torch.zeros_like(sizes)

    def start(self, block: Tensor) -> None:
        """The first block says where the scores live."""
        for name in ("row", "column", "order", "turn", "rivals", "tied"):
            setattr(self, name, getattr(self, name).to(block.device))
        self.own = block.new_empty(len(self.row))

    def blank_own(self, block: Tensor, start: int) -> Tensor:
        """Take the scores of the true pairs out of a block; returns which pairs they are."""
        pairs = self.order[self.offsets[start] : self.offsets[start + len(block)]]
        rows, columns = self.row[pairs] - start, self.column[pairs]
        self.own[pairs] = block[rows, columns]
        block[rows, columns] = torch.nan
        return pairs

    def count(self, block: Tensor, pairs: Tensor, start: int, mask: "Mask") -> None:
        best = block.new_full((len(block),), -torch.inf)
        fewest = torch.zeros(len(block), dtype=torch.int64, device=block.device)
        turns = self.turn[pairs]
        for turn in range(int(turns.max()) + 1 if len(turns) else 0):
            chosen = pairs[turns == turn]
            rows, own = self.row[chosen] - start, self.own[chosen]
            # Where every row has such a pair, rows is 0, 1, 2, ...
            part = block if len(rows) == len(block) else block[rows]
            rivals = mask.per_row(part, own)
            self.rivals[chosen] = rivals
            fewest[rows] = rivals if turn == 0 else torch.minimum(fewest[rows], rivals)
            best[rows] = torch.maximum(best[rows], own)
        above = mask.per_row(block, best, strict=True)
        self.tied[start : start + len(block)] = fewest - above


class _Columns:
    """The caption -> image direction, one block of images after the other."""

    def __init__(self, own: Tensor, tolerance: Tensor | None) -> None:
        self.exact = tolerance is None
        self.low = own if tolerance is None else own - tolerance
        self.high = own if tolerance is None else own + tolerance
        self.rivals = torch.zeros(len(own), dtype=torch.int64, device=own.device)
        self.tied = torch.zeros_like(self.rivals)
        self.undecided: list[tuple[Tensor, Tensor]] = []  # (captions, scores)
        self.kept = 0
        self.lock = Lock()

    def count(self, block: Tensor, mask: "Mask") -> None:
        if self.kept > _UNDECIDED:
            return
        above = mask.per_column(block, self.high, strict=True)
        near = mask.per_column(block, self.low) - above
        found = None if self.exact else self._undecided(block, near)
        with self.lock:
            self.rivals += above
            if found is None:
                self.rivals += near
                self.tied += near
            else:
                self.kept += len(found[0])
                self.undecided.append(found)

    def _undecided(self, block: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Captions and scores of the rivals that are too close to call."""
        captions = near.nonzero()[:, 0]
        part = block[:, captions]
        close = (part >= self.low[captions]) & (part <= self.high[captions])
        return captions[close.nonzero()[:, 1]], part[close]

    def settle(self, own: Tensor) -> bool:
        """Judge the undecided rivals by the true scores; False: count again."""
        if self.exact:
            return True
        if self.kept > _UNDECIDED or not bool(((own >= self.low) & (own <= self.high)).all()):
            return False
        for captions, values in self.undecided:
            self.rivals.index_add_(0, captions, (values >= own[captions]).long())
            self.tied.index_add_(0, captions, (values == own[captions]).long())
        return True


class Mask:
    """Compares a block with thresholds and counts what is true.

    On a CPU numpy does this several times faster than torch, which compares one entry at a time
    and turns each into 64 bits before it adds them.
    """

    def __init__(self, block: Tensor) -> None:
        self.on_cpu = block.device.type == "cpu"
        self.space = np.empty(block.shape if self.on_cpu else (0, 0), dtype=bool)

    def per_row(self, block: Tensor, thresholds: Tensor, *, strict: bool = False) -> Tensor:
        """How many entries of each row are at least (`strict`: above) the row's threshold."""
        if not self.on_cpu:
            return _compare(block, thresholds[:, None], strict).sum(dim=1)
        mask = self._compare(block, thresholds[:, None], strict)
        return torch.tensor([np.count_nonzero(row) for row in mask])

    def per_column(self, block: Tensor, thresholds: Tensor, *, strict: bool = False) -> Tensor:
        """How many entries of each column are at least (or above) the column's threshold."""
        if not self.on_cpu:
            return _compare(block, thresholds, strict).sum(dim=0)
        mask = self._compare(block, thresholds, strict)
        # Bytes add up fast; a strip has too few rows for one to overflow.
        sums = np.add.reduce(mask.view(np.uint8), axis=0, dtype=np.uint8)
        return torch.from_numpy(sums.astype(np.int64))

    def _compare(self, block: Tensor, thresholds: Tensor, strict: bool) -> npt.NDArray[np.bool_]:
        operation = np.greater if strict else np.greater_equal
        with np.errstate(invalid="ignore"):  # NaN compares false: that is what it is there for
            mask = self.space[: len(block)]
            operation(block.numpy(), thresholds.numpy(), out=mask)
        return mask


def _compare(block: Tensor, thresholds: Tensor, strict: bool) -> Tensor:
    return block > thresholds if strict else block >= thresholds
