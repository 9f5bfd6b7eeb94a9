"""Counting by words of eight entries, as a GPU does it and as a CPU does."""

import pytest
import torch

from simgrad.evaluation.rivals import Mask


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 8), (200, 2041), (255, 4080), (9, 2039)])
def test_counts_are_those_of_plain_sums(rows: int, columns: int, on_cpu: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    block = torch.randint(0, 4, (rows, columns), generator=generator).float()  # full of ties
    block[0, 0] = torch.nan
    mask = Mask(block)
    mask.on_cpu = on_cpu
    by_row, by_column = block[:, -1].nan_to_num().clone(), block[-1].nan_to_num().clone()
    by_row[0] = by_column[0] = -1  # all but NaN are above: every byte is full
    assert torch.equal(mask.per_row(block, by_row), (block >= by_row[:, None]).sum(1))
    above = mask.per_row(block, by_row, strict=True)
    assert torch.equal(above, (block > by_row[:, None]).sum(1))
    some = torch.arange(0, rows, 2)
    assert torch.equal(
        mask.per_row(block, by_row[some], some), (block >= by_row[:, None]).sum(1)[some]
    )
    assert torch.equal(mask.per_column(block, by_column), (block >= by_column).sum(0))
    assert torch.equal(mask.per_column(block, by_column, strict=True), (block > by_column).sum(0))


def test_many_rows_do_not_overflow() -> None:
    block = torch.zeros(511, 3)
    mask = Mask(block)
    mask.on_cpu = False
    assert mask.per_column(block, torch.tensor([0.0, 1.0, -1.0])).tolist() == [511, 0, 511]
