"""Several processes, one batch: each encodes its share, all weigh the whole.

Every process gathers what the others encoded, computes the loss of the whole batch and sends back
its part of it, one over their number. Its own share alone has a gradient history; it gets that of
the whole loss. What works on the gathered batch (a captioner, a learned temperature) gets its
gradient in parts. The sum over all processes is the gradient of one process on the whole batch.
Started by `torchrun`; without it nothing here does anything.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from simgrad.models.base import Encoded


@contextmanager
def together() -> Iterator[None]:
    """Join the processes that torchrun started, if it did, for as long as training lasts."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def wait() -> None:
    """Until every process is here."""
    if size() > 1:
        dist.barrier()


def size() -> int:
    """How many processes share a batch."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is."""
    return dist.get_rank() if size() > 1 else 0


def any_of(flag: bool) -> bool:
    """Whether it is true in any process; a meeting of all of them."""
    if size() == 1:
        return flag
    told = torch.tensor([int(flag)], device=_device())
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told.item())


def first(value: float) -> float:
    """The first process's number, in all of them."""
    if size() == 1:
        return value
    told = torch.tensor([value], dtype=torch.float64, device=_device())
    dist.broadcast(told, 0)
    return float(told.item())


def _device() -> torch.device:
    """Where messages must lie."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def share(count: int) -> slice:
    """The rows that this process encodes: contiguous, as even as possible."""
    world, mine = size(), rank()
    return slice(count * mine // world, count * (mine + 1) // world)


def gather(own: Encoded, count: int) -> Encoded:
    """What all processes encoded, in order; gradients flow to the own share alone."""
    if size() == 1:
        return own
    masked = own.tokens is not None
    return Encoded(
        None if own.vectors is None else _gather(own.vectors, count),
        _gather(own.tokens, count) if own.tokens is not None else None,
        _gather(own.real(), count) if masked else None,
    )


def _gather(own: Tensor, count: int) -> Tensor:
    world, mine = size(), rank()
    counts = [count * (r + 1) // world - count * r // world for r in range(world)]
    # Sets may have other lengths elsewhere, and shares may differ by one row: pad, then cut.
    lengths = [torch.zeros(1, dtype=torch.long, device=own.device) for _ in range(world)]
    local = torch.tensor([own.shape[1] if own.dim() > 2 else 0], device=own.device)
    if own.dtype == torch.bool:
        local = torch.tensor([own.shape[1]], device=own.device)
    dist.all_gather(lengths, local)
    longest = int(torch.cat(lengths).max())
    padded = _pad(own, max(counts), longest)
    if padded.requires_grad:
        # Of the whole loss, not of a part.
        padded.register_hook(lambda gradient: gradient * world)  # type: ignore[no-untyped-call]
    sent = padded.detach().contiguous()
    as_bytes = sent.to(torch.uint8) if sent.dtype == torch.bool else sent
    received = [torch.empty_like(as_bytes) for _ in range(world)]
    dist.all_gather(received, as_bytes)
    parts = [padded if r == mine else received[r].to(own.dtype) for r in range(world)]
    return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])


def _pad(x: Tensor, rows: int, length: int) -> Tensor:
    pads = [0, 0] * (x.dim() - 1)
    pads += [0, rows - len(x)]
    if length:  # (n, length, ...): the second dimension is padded too
        pads[-3] = length - x.shape[1]
    return nn.functional.pad(x, pads)


def add_gradients(model: nn.Module, learned: nn.Module) -> None:
    """Sum the processes' gradients, of the model and of what objectives learn."""
    if size() == 1:
        return
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for parameter in (*model.parameters(), *learned.parameters()):
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
