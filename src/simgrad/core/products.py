"""How precisely float32 matrices are multiplied: PyTorch has one setting for the whole process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_changed = threading.Condition()
_users: list[bool] = []  # one entry for every computation under way: whether it is coarse
_before: list[str] = []  # what the first of them found


@contextmanager
def float32_products(coarse: bool) -> Iterator[None]:
    """Multiply in TF32 where `coarse`, else in full float32, and put back what was set before.

    Threads that want the same work side by side; one that wants the other waits for them.
    """
    with _changed:
        _changed.wait_for(lambda: coarse in _users or not _users)
        if not _users:
            _before[:] = [torch.get_float32_matmul_precision()]
            torch.set_float32_matmul_precision("high" if coarse else "highest")
        _users.append(coarse)
    try:
        yield
    finally:
        with _changed:
            _users.remove(coarse)
            if not _users:
                torch.set_float32_matmul_precision(_before[0])
            _changed.notify_all()
