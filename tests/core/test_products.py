"""The precision of products holds for one computation, not for those after it or beside it."""

import threading

import pytest
import torch

from simgrad.training.sitting import float32_products


@pytest.mark.parametrize("before", ["highest", "high", "medium"])
@pytest.mark.parametrize(("coarse", "within"), [(True, "high"), (False, "highest")])
def test_the_setting_holds_inside_and_is_put_back(before: str, coarse: bool, within: str) -> None:
    original = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    try:
        with float32_products(coarse):
            assert torch.get_float32_matmul_precision() == within
        assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision(original)


def test_the_same_precision_goes_side_by_side_and_another_waits() -> None:
    seen: list[str] = []
    entered = threading.Event()

    def other(coarse: bool) -> None:
        with float32_products(coarse):
            seen.append(torch.get_float32_matmul_precision())
            entered.set()

    before = torch.get_float32_matmul_precision()
    with float32_products(coarse=True):
        same = threading.Thread(target=other, args=(True,))
        same.start()
        same.join(10)
        assert seen == ["high"]
        entered.clear()
        waiting = threading.Thread(target=other, args=(False,))
        waiting.start()
        assert not entered.wait(0.2)
        assert torch.get_float32_matmul_precision() == "high"
    waiting.join(10)
    assert seen == ["high", "highest"]
    assert torch.get_float32_matmul_precision() == before
