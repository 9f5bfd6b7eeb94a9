"""Counting what is above a threshold, per row or per column of a block of similarities."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Mask:
    """Compares a block with thresholds and counts what is true.

    Eight entries, a byte each, are added at once, 255 times at most: no byte overflows. torch
    would turn each entry into 64 bits first. On a CPU numpy also compares faster.
    """

    def __init__(self, block: Tensor) -> None:
        self.on_cpu = block.device.type == "cpu"
        self.columns = block.shape[1]
        # Rows are padded to whole words of eight entries, of which the last are never true.
        shape = (len(block), -(-self.columns // 8) * 8) if self.on_cpu else (0, 0)
        self.space = np.zeros(shape, dtype=bool)

    def per_row(
        self, block: Tensor, thresholds: Tensor, rows: Tensor | None = None, *, strict: bool = False
    ) -> Tensor:
        """How many entries of each row are at least (`strict`: above) the row's threshold.

        `rows`: of these rows only.
        """
        if not self.on_cpu:
            part = block if rows is None else block[rows]
            table = _words(part, thresholds[:, None], strict, (1, 255 * 8))
            return table.view(len(part), -1, 255).sum(2).view(torch.uint8).sum(1)
        words = self._compare(block, thresholds[:, None], strict, rows).view(np.int64)
        whole = words.shape[1] // 255 * 255
        sums = np.add.reduce(words[:, :whole].reshape(len(words), -1, 255), axis=2)
        rest = np.add.reduce(words[:, whole:], axis=1, keepdims=True)
        lanes = np.concatenate([sums, rest], axis=1).view(np.uint8)
        return torch.from_numpy(lanes.sum(axis=1, dtype=np.int64))

    def per_column(self, block: Tensor, thresholds: Tensor, *, strict: bool = False) -> Tensor:
        """How many entries of each column are at least (or above) the column's threshold."""
        if not self.on_cpu:
            words = _words(block, thresholds, strict, (255, 8))
            sums = words.view(-1, 255, words.shape[1]).sum(1).view(torch.uint8).sum(0)
            return sums[: self.columns]
        mask = self._compare(block, thresholds, strict)
        # Bytes add up fast; a strip has too few rows for one to overflow.
        lanes = np.add.reduce(mask.view(np.uint8), axis=0, dtype=np.uint8)
        return torch.from_numpy(lanes[: self.columns].astype(np.int64))

    def _compare(
        self, block: Tensor, thresholds: Tensor, strict: bool, rows: Tensor | None = None
    ) -> npt.NDArray[np.bool_]:
        operation = np.greater if strict else np.greater_equal
        values, limits = block.numpy(), thresholds.numpy()
        mask = self.space[: len(block) if rows is None else len(rows)]
        with np.errstate(invalid="ignore"):  # NaN compares false: that is what it is there for
            if rows is None:
                operation(values, limits, out=mask[:, : self.columns])
            else:  # one by one: to copy the rows would take longer than to compare them
                for place, row in enumerate(rows.tolist()):
                    operation(values[row], limits[place], out=mask[place, : self.columns])
        return mask


def _words(block: Tensor, thresholds: Tensor, strict: bool, whole: tuple[int, int]) -> Tensor:
    """Comparisons, eight to a word, in a table of whole multiples of this many rows and columns."""
    rows, columns = (-(-size // unit) * unit for size, unit in zip(block.shape, whole, strict=True))
    mask = torch.zeros((rows, columns), dtype=torch.bool, device=block.device)
    inside = mask[: block.shape[0], : block.shape[1]]
    (torch.gt if strict else torch.ge)(block, thresholds, out=inside)
    return mask.view(torch.int64)
