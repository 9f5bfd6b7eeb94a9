"""Counting what reaches a threshold: in bytes, as a CPU does it, and in words, as a GPU does it."""

import pytest
import torch

from simgrad.evaluation.rivals import column_words, per_column, per_row, row_words


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 8), (200, 2041), (255, 4080), (9, 2039)])
def test_counts_are_those_of_plain_sums(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    block = torch.randint(0, 4, (rows, columns), generator=generator).float()  # full of ties
    block[0, 0] = torch.nan
    by_row, by_column = block[:, -1].nan_to_num().clone(), block[-1].nan_to_num().clone()
    by_row[0] = by_column[0] = -1  # all but NaN are above: every byte is full
    some = torch.arange(0, rows, 2)
    for strict, compare in ((False, torch.ge), (True, torch.gt)):
        in_rows = compare(block, by_row[:, None]).sum(1)
        in_columns = compare(block, by_column).sum(0)
        assert torch.equal(per_row(block, by_row, strict=strict), in_rows)
        assert torch.equal(per_row(block, by_row[some], some, strict=strict), in_rows[some])
        assert torch.equal(row_words(block, by_row, strict), in_rows)
        assert torch.equal(per_column(block, by_column, strict=strict), in_columns)
        assert torch.equal(column_words(block, by_column, strict), in_columns)


def test_many_rows_do_not_overflow_in_words() -> None:
    block = torch.zeros(511, 3)
    assert column_words(block, torch.tensor([0.0, 1.0, -1.0]), False).tolist() == [511, 0, 511]
