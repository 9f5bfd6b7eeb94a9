"""What may be captured: nothing that is read from the host's memory. Another device stands for a
GPU here; on one, `tests/training/test_grouped.py` looks what a captured graph computes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from simgrad.core.gpu import NothingFromHost

REFUSED: list[Callable[[Tensor], object]] = [
    lambda x: x[torch.arange(2)],
    lambda x: x.index_put_((torch.arange(2),), x.new_zeros(())),
    lambda x: x.index_put_((torch.zeros_like(x, dtype=torch.long),), torch.zeros(())),
    lambda x: torch.zeros(()).to(x.device),
    lambda x: x.copy_(torch.zeros(4)),
]
ALLOWED: list[Callable[[Tensor], object]] = [
    lambda x: x * torch.tensor(3.0),
    lambda x: x.gather(0, torch.zeros(2, dtype=torch.long, device=x.device)),
    lambda x: torch.arange(3) + torch.ones(3, dtype=torch.long),
    lambda x: x.to(torch.float64),
]


@pytest.mark.parametrize("work", REFUSED)
def test_what_reads_the_host_s_memory_is_refused(work: Callable[[Tensor], object]) -> None:
    with NothingFromHost(), pytest.raises(RuntimeError, match="host's memory"):
        work(torch.ones(4, device="meta"))


@pytest.mark.parametrize("work", ALLOWED)
def test_what_stays_on_the_device_is_not(work: Callable[[Tensor], object]) -> None:
    with NothingFromHost():
        work(torch.ones(4, device="meta"))


@pytest.mark.parametrize("work", [*REFUSED, *ALLOWED])
def test_on_the_host_everything_may(work: Callable[[Tensor], object]) -> None:
    with NothingFromHost():
        work(torch.ones(4))
