"""Exact search among unit vectors."""

import time

import pytest
import torch

from simgrad.search.exact import Exact, best, product


def unit(n: int, d: int, seed: int = 0) -> torch.Tensor:
    made = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(made, dim=1)


def test_ties_are_broken_by_row() -> None:
    assert [row for row, _ in best(torch.tensor([0.5, 1.0, 0.5, 1.0, 0.5]), 4)] == [1, 3, 0, 2]
    assert best(torch.empty(0), 3) == []
    assert len(best(torch.zeros(2), 5)) == 2


@pytest.mark.parametrize("crowded", [False, True])
def test_two_passes_give_the_answer_of_one(crowded: bool) -> None:
    vectors = unit(3000, 40)
    if crowded:  # nearly everything within the rounding of half precision
        vectors = torch.nn.functional.normalize(vectors[:1] + 1e-3 * vectors, dim=1)
    rough, plain = Exact(vectors, halves=True), Exact(vectors, halves=False)
    assert rough._halves is not None
    for query in unit(20, 40, seed=1):
        found, expected = rough.search(query, 10), plain.search(query, 10)
        assert [row for row, _ in found] == [row for row, _ in expected]
        assert [s for _, s in found] == pytest.approx([s for _, s in expected], abs=1e-6)


def test_blocks_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, query = unit(103, 8), unit(1, 8, 2)[0]
    monkeypatch.setattr("simgrad.search.exact._BLOCK", 10)
    assert torch.allclose(product(vectors, query), vectors @ query)


def test_a_hundred_thousand_items_in_fifty_milliseconds() -> None:
    index, queries = Exact(unit(100_000, 256)), unit(12, 256, 1)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = []
        for query in queries:
            start = time.perf_counter()
            index.search(query, 10)
            times.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    assert min(times) < 0.05  # the fastest: other processes may hold the core for the rest
