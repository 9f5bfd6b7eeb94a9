"""What several rooms need to know of a GPU: which compiled kernels run, and who may capture now.

Kernels are compiled by Triton, where it is installed, when they are first called. One that cannot
be compiled or started is said once, and not tried again. Nothing can be compiled while a CUDA graph
is captured: there a kernel is used if the same call ran before outside of one, as a step that is
warmed up has.
"""

import importlib
import importlib.util
import threading
import warnings
from collections.abc import Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# One capture at a time in a process, and no memory given back meanwhile.
capturing = threading.Lock()
_broken: set[str] = set()
_ran: set[Hashable] = set()  # calls whose kernels are compiled


@cache
def kernels(module: str) -> Any:
    """A module of Triton kernels: imported where they are used, since Triton may not be there."""
    return importlib.import_module(module)


@cache
def installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def capable(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


def ready(kernel: str, call: Hashable) -> bool:
    """Whether a kernel runs here, and needs no compilation where there can be none."""
    if kernel in _broken or not installed():
        return False
    return call in _ran or not is_capturing()


def is_capturing() -> bool:
    """Whether what is started now becomes part of a CUDA graph."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


class NothingFromHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations on a GPU that read numbers from the host's memory.

    In a captured graph they would read what stands at that place when it is replayed, long after
    the tensor that was meant is gone: nobody would notice. A single number is passed by value,
    except where it is copied.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        host = [x for x in given if x.device.type == "cpu"]
        if host:
            there = tree_leaves(result) if func in _COPIES else given
            elsewhere = any(isinstance(x, Tensor) and x.device.type != "cpu" for x in there)
            if elsewhere and (func in _COPIES or any(x.dim() for x in host)):
                raise RuntimeError(
                    f"{func} reads from the host's memory, which a captured step cannot: put what "
                    "it reads on the GPU, or take plain steps (`graphs: false`)"
                )
        return result


_COPIES = {
    torch.ops.aten._to_copy.default,
    torch.ops.aten.copy_.default,
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
}


def ran(call: Hashable) -> None:
    """From now on this call needs no compilation."""
    _ran.add(call)


def give_up(kernel: str, whose: str, error: Exception) -> None:
    """A kernel that does not run: said once, not tried again."""
    if is_capturing():
        raise error  # it may be the capture that failed, and whoever began it must know
    _broken.add(kernel)
    warnings.warn(
        f"{whose}: its fused kernels do not run here ({str(error)[:200]}); it is worked without "
        "them, more slowly.",
        stacklevel=3,
    )
