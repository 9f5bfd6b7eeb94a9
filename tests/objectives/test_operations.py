"""How many operations a step takes: a small batch on a GPU waits for each to be started."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from simgrad.objectives import fused, objective

from .emulated import Kernel, stand_in

# Views, and memory that is not written: nothing to start.
_FREE = {
    "alias", "as_strided", "detach", "diagonal", "empty", "empty_like", "expand", "new_empty",
    "select", "slice", "squeeze", "t", "unbind", "unsqueeze", "view",
}  # fmt: skip
# Of a square batch, forward and backward: in one piece, and with fused kernels (launches apart).
# The products of rows are two operations, as they have always been on a GPU.
MOST = {
    "nt-xent": (30, 31),
    "siglip": (34, 41),
    "triplet": (28, 25),
    "triplet-sh": (32, 34),
    "smooth-ap": (38, 35),
    "goal": (92, 86),
}


class Operations(TorchDispatchMode):
    """Counts what is run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, _: Any, inputs: Any = (), named: Any = None) -> Any:
        self.counted[function._schema.name.removeprefix("aten::")] += 1
        return function(*inputs, **(named or {}))


def _uncounted(function: Callable[..., None]) -> Callable[..., None]:
    def launch(*inputs: Any, **named: Any) -> None:
        with _disable_current_modes():
            function(*inputs, **named)

    return launch


def _count(loss: Callable[[Tensor, Tensor], Tensor]) -> int:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(64, 16, generator=generator).requires_grad_() for _ in range(2))
    loss(x, y).backward()  # what is made once
    x.grad = y.grad = None
    with Operations() as operations:
        value = loss(x, y)
        torch.autograd.grad(value, [x, y])
    return sum(n for name, n in operations.counted.items() if name not in _FREE)


@contextlib.contextmanager
def _with_kernels() -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        kernels = stand_in(patch)
        for kernel in kernels.values():
            kernel.function = _uncounted(kernel.function)
        patch.setattr(fused, "suits", lambda *_: True)
        patch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        yield kernels["tile"]


@pytest.mark.parametrize("name", list(MOST))
def test_a_step_takes_few_operations(name: str) -> None:
    in_one, with_kernels = MOST[name]
    assert _count(objective(name)) <= in_one
    with _with_kernels() as tile:
        assert _count(objective(name)) <= with_kernels
    assert tile.launches > 0


def test_fewer_than_the_plain_loss() -> None:
    def plain(x: Tensor, y: Tensor) -> Tensor:
        logits, every = normalize(x) @ normalize(y).t() / 0.1, torch.arange(len(x))
        return (cross_entropy(logits, every) + cross_entropy(logits.t(), every)) / 2

    assert _count(objective("nt-xent")) < 0.7 * _count(plain)
