"""Ranks by counting, both directions over one matrix product, never a sort.

1. A block of image rows is multiplied with all captions. The scores of the true pairs are
   read from that very block and then blanked out (NaN compares false with everything), so
   nothing can outrank itself, and an image's other captions are no rivals of each other.
2. Image -> caption: all rivals are in the row. Count, per true pair, those with at least its
   score.
3. Caption -> image: the rivals of a caption are spread over all blocks, while its own score
   is in one of them. A guess of that score (a plain dot product) goes ahead. Rivals above the
   guess by more than rounding are counted at once; the few within rounding are remembered and
   judged in the end, by the score that the block gave. If a guess was off, or too many rivals
   are too close to call, the blocks are made again, now with the scores known. Where one block
   holds everything, its scores are known before anything is counted, and nothing is guessed.

How ties count is `is_rival`. Four places say the same in a faster way, and change with it:
`_words` (torch.ge, on a GPU), `_Rows.count` (searchsorted, where a row has very many pairs),
`_Columns.count` (above + near), and `_at_least` in `coco.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.evaluation.scores import Scores


def is_rival(values: Any, own: Any) -> Any:
    """The tie rule: what scores exactly as high as the true item stands before it.

    So a model that gives everything one score finds nothing. With `>` ties would count for us.
    """
    return values >= own


@np.errstate(invalid="ignore")  # blanked entries are NaN, so that they compare false
def per_row(
    block: Tensor, thresholds: Tensor, rows: Tensor | None = None, *, strict: bool = False
) -> Tensor:
    """How many entries of each row are at least (`strict`: above) the row's threshold.

    `rows`: of these rows only.
    """
    if block.device.type != "cpu":
        return row_words(block if rows is None else block[rows], thresholds, strict)
    # One by one: to copy the rows would take longer than to compare them.
    values = block.numpy() if rows is None else map(block.numpy().__getitem__, rows.tolist())
    pairs = zip(values, thresholds.numpy(), strict=True)
    return torch.tensor([np.count_nonzero(_compare(row, at, strict)) for row, at in pairs])


@np.errstate(invalid="ignore")
def per_column(block: Tensor, thresholds: Tensor, *, strict: bool = False) -> Tensor:
    """How many entries of each column are at least (or above) the column's threshold.

    On a CPU at most 255 rows.
    """
    if block.device.type == "cpu":
        # Bytes add up fast; a strip has too few rows for one to overflow.
        mask = _compare(block.numpy(), thresholds.numpy(), strict)
        lanes = mask.view(np.uint8).sum(0, dtype=np.uint8)
        return torch.from_numpy(lanes.astype(np.int64))
    return column_words(block, thresholds, strict)


def _compare(values: Any, thresholds: Any, strict: bool) -> npt.NDArray[np.bool_]:
    """By numpy, which compares faster than torch on a CPU."""
    mask: npt.NDArray[np.bool_] = values > thresholds if strict else is_rival(values, thresholds)
    return mask


def row_words(block: Tensor, thresholds: Tensor, strict: bool) -> Tensor:
    """The counts of `per_row`, in words."""
    table = _words(block, thresholds[:, None], strict, (1, 255 * 8))
    return table.view(len(block), -1, 255).sum(2).view(torch.uint8).sum(1)


def column_words(block: Tensor, thresholds: Tensor, strict: bool) -> Tensor:
    """The counts of `per_column`, in words."""
    words = _words(block, thresholds, strict, (255, 8))
    sums = words.view(-1, 255, words.shape[1]).sum(1).view(torch.uint8).sum(0)
    return sums[: block.shape[1]]


def _words(block: Tensor, thresholds: Tensor, strict: bool, whole: tuple[int, int]) -> Tensor:
    """Comparisons, eight to a word, in a table of whole multiples of this many rows and columns.

    Eight entries, a byte each, are added at once, 255 times at most: no byte overflows. torch would
    turn each entry into 64 bits first.
    """
    rows, columns = (-(-size // unit) * unit for size, unit in zip(block.shape, whole, strict=True))
    mask = torch.zeros((rows, columns), dtype=torch.bool, device=block.device)
    inside = mask[: block.shape[0], : block.shape[1]]
    (torch.gt if strict else torch.ge)(block, thresholds, out=inside)
    return mask.view(torch.int64)


# The most undecided rivals that are kept, 12 bytes each; with more, counting again is cheaper.
_UNDECIDED = 4_000_000
# In a row with more pairs than this, candidates are sorted once, not compared with every pair.
_CROWD = 64
# Rows that are counted together on a CPU; at most 255, or a mask's bytes would overflow.
_STRIP = 100


@dataclass(frozen=True)
class Rivals:
    """What one pass over the similarities yields; everything else follows from it."""

    own: Tensor  # (captions,) score of each caption with its own image
    i2t: Tensor  # (captions,) captions of other images that its image scores at least as high
    t2i: Tensor  # (captions,) other images that the caption scores at least as high
    i2t_tied: Tensor  # (images,) of the rivals of its best caption, those with an equal score
    t2i_tied: Tensor  # (captions,) of its rivals, those with an equal score
    others: "OtherRivals | None" = None


@dataclass(frozen=True)
class OtherRivals:
    """The same for pairs of an image and another image's caption."""

    scores: Tensor  # (pairs,)
    i2t: Tensor  # (pairs,) captions of other images that score at least as high, itself included
    t2i: Tensor  # (pairs,) images, not the caption's own, that do, itself included


@torch.no_grad()
def count_rivals(
    scores: Scores,
    image_of_caption: Tensor,
    rows: int | None = None,
    others: tuple[Tensor, Tensor] | None = None,
) -> Rivals:
    """Count the rivals of every true pair, in both directions; `rows` images at a time.

    `others`, (images, captions), are pairs to count in the same pass.
    """
    own = _Rows(image_of_caption, torch.arange(scores.num_captions), scores.num_images)
    groups = [own] if others is None else [own, _Rows(*others, scores.num_images)]
    captions = [None if group is own else group.column for group in groups]  # None: each, in order
    columns: list[_Columns] = []
    at_once = scores.block_rows(rows) >= scores.num_images
    if not at_once:
        guesses = [scores.guess_own(group.row, group.column) for group in groups]
        columns = [_Columns(c, *g) for c, g in zip(captions, guesses, strict=True) if g is not None]
    for start, _, block in scores.blocks(rows):
        if at_once:
            for group in groups:
                group.read(block, start, blank=group is own)
            columns = [_Columns(c, g.own, None) for c, g in zip(captions, groups, strict=True)]
        for first, strip in _strips(start, block):
            for group in groups:
                if not at_once:
                    group.read(strip, first, blank=group is own)
                group.count(strip, first)
            own.count_tied(strip, first)
            for column in columns:
                column.count(strip)
    exact = [group.own for group in groups]
    if not columns or not all(c.settle(e) for c, e in zip(columns, exact, strict=True)):
        columns = [_Columns(c, e, None) for c, e in zip(captions, exact, strict=True)]
        for start, _, block in scores.blocks(rows):
            for first, strip in _strips(start, block):
                own.read(strip, first, blank=True)
                for column in columns:
                    column.count(strip)
    more = None if others is None else OtherRivals(exact[1], groups[1].rivals, columns[1].rivals)
    return Rivals(own.own, own.rivals, columns[0].rivals, own.tied, columns[0].tied, more)


@torch.no_grad()
def count_rows(scores: Scores, query: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
    """For true pairs of any pattern: their scores, and the rivals each has in its row."""
    state = _Rows(query, candidate, scores.num_images)
    for start, _, block in scores.blocks():
        for first, strip in _strips(start, block):
            state.read(strip, first, blank=True)
            state.count(strip, first)
    return state.own, state.rivals


def _strips(start: int, block: Tensor) -> Iterator[tuple[int, Tensor]]:
    """A block, on a CPU cut so that a strip stays in its cache while it is counted."""
    step = _STRIP if block.device.type == "cpu" else len(block)
    for first in range(0, len(block), step):
        yield start + first, block[first : first + step]


class _Rows:
    """The rivals of pairs (row, column) within their rows."""

    own: Tensor  # (pairs,) scores, as the blocks gave them
    # The first pairs of all rows, the second ones, ...: pairs and their rows, which rise.
    turns: list[tuple[Tensor, npt.NDArray[np.int64]]]

    def __init__(self, row: Tensor, column: Tensor, num_rows: int) -> None:
        rows = row.numpy()
        order = np.argsort(rows, kind="stable")
        sizes = np.bincount(rows, minlength=num_rows)
        begin = np.concatenate([[0], np.cumsum(sizes)])
        self.offsets = begin.tolist()
        self.crowded = np.flatnonzero(sizes > _CROWD)
        few = order[sizes[rows[order]] <= _CROWD]
        place = np.arange(len(rows)) - begin[rows[order]]  # 0 for the first pair of its row, 1, ...
        turn = place[sizes[rows[order]] <= _CROWD]
        by_turn = few[np.argsort(turn, kind="stable")]
        ends = np.cumsum(np.bincount(turn))[:-1]
        # On the host, because a lookup on a GPU would have to be waited for.
        self.rows_by_turn, self.ends = np.split(rows[by_turn], ends), ends.tolist()
        self.row, self.column = row, column
        self.order, self.by_turn = torch.from_numpy(order), torch.from_numpy(by_turn)
        self.rivals = torch.zeros_like(row)
        self.tied = torch.zeros(num_rows, dtype=torch.int64)

    def _start(self, block: Tensor) -> None:
        """The first block says where the scores live."""
        for name in ("row", "column", "order", "by_turn", "rivals", "tied"):
            setattr(self, name, getattr(self, name).to(block.device))
        parts = self.by_turn.tensor_split(self.ends)
        self.turns = list(zip(parts, self.rows_by_turn, strict=True))
        self.own = block.new_empty(len(self.row))

    def _pairs(self, block: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """The pairs that a block holds, and their rows in it."""
        pairs = self.order[self.offsets[start] : self.offsets[start + len(block)]]
        return pairs, self.row[pairs] - start

    def read(self, block: Tensor, start: int, *, blank: bool) -> None:
        """Read the scores of the pairs in a block, and blank them out or not."""
        if start == 0:
            self._start(block)
        pairs, rows = self._pairs(block, start)
        columns = self.column[pairs]
        self.own[pairs] = block[rows, columns]
        if blank:
            block[rows, columns] = torch.nan

    def count(self, block: Tensor, start: int) -> None:
        """Count what scores at least as high as each pair."""
        for pairs, rows in self.turns:
            first, last = np.searchsorted(rows, (start, start + len(block)))
            if first == last:
                break  # a row without a second pair has no third
            chosen = pairs[first:last]
            # Where every row has such a pair, the rows are 0, 1, 2, ...
            some = None if last - first == len(block) else self.row[chosen] - start
            self.rivals[chosen] = per_row(block, self.own[chosen], some)
        first, last = np.searchsorted(self.crowded, (start, start + len(block)))
        for row in self.crowded[first:last].tolist():
            pairs = self.order[self.offsets[row] : self.offsets[row + 1]]
            candidates = block[row - start]
            ordered = candidates[~candidates.isnan()].sort().values
            self.rivals[pairs] = len(ordered) - torch.searchsorted(ordered, self.own[pairs])

    def count_tied(self, block: Tensor, start: int) -> None:
        """Of the rivals of each row's best pair, those with its score; every row has a pair."""
        pairs, rows = self._pairs(block, start)
        best = block.new_empty(len(block))
        best.scatter_reduce_(0, rows, self.own[pairs], "amax", include_self=False)
        fewest = self.tied[start : start + len(block)]
        fewest.scatter_reduce_(0, rows, self.rivals[pairs], "amin", include_self=False)
        fewest -= per_row(block, best, strict=True)


class _Columns:
    """The caption -> image direction, one block of images after the other."""

    def __init__(self, captions: Tensor | None, own: Tensor, tolerance: Tensor | None) -> None:
        self.captions = captions if captions is None else captions.to(own.device)
        self.exact = tolerance is None
        self.low = own if tolerance is None else own - tolerance
        self.high = own if tolerance is None else own + tolerance
        self.rivals = torch.zeros(len(own), dtype=torch.int64, device=own.device)
        self.tied = torch.zeros_like(self.rivals)
        self.undecided: list[tuple[Tensor, Tensor]] = []  # (columns, scores)
        self.kept = 0

    def count(self, block: Tensor) -> None:
        if self.kept > _UNDECIDED:
            return
        if self.captions is not None:
            block = block.index_select(1, self.captions)
        above = per_column(block, self.high, strict=True)
        near = per_column(block, self.low) - above
        self.rivals += above
        if self.exact:
            self.rivals += near
            self.tied += near
        else:
            self.undecided.append(self._close_calls(block, near))
            self.kept += len(self.undecided[-1][0])

    def _close_calls(self, block: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Columns and scores of the rivals that are too close to call."""
        columns = near.nonzero()[:, 0]
        low, high = self.low[columns], self.high[columns]
        if block.device.type != "cpu":
            part = block[:, columns]
            close = (part >= low) & (part <= high)
            return columns[close.nonzero()[:, 1]], part[close]
        chosen = block.numpy()[:, columns.numpy()]
        with np.errstate(invalid="ignore"):
            among = (chosen >= low.numpy()) & (chosen <= high.numpy())
        return columns[torch.from_numpy(np.nonzero(among)[1])], torch.from_numpy(chosen[among])

    def settle(self, own: Tensor) -> bool:
        """Judge the undecided rivals by the true scores; False: count again."""
        if self.exact:
            return True
        if self.kept > _UNDECIDED or not bool(((own >= self.low) & (own <= self.high)).all()):
            return False
        for columns, values in self.undecided:
            self.rivals.index_add_(0, columns, is_rival(values, own[columns]).long())
            self.tied.index_add_(0, columns, (values == own[columns]).long())
        return True
