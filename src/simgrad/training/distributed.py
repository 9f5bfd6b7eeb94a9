"""Several processes, one batch: each reads and encodes its share, and weighs it against all.

Images are shared out in order, captions go with their image. Where a model encodes to vectors, the
objective is `simgrad.distributed`: texts go round, and nobody holds the whole batch. Where it
compares sets, captions are gathered, and each process compares its own images with them.
The processes' gradients are added: that is the gradient of one process on the whole batch.
Started by `torchrun`; without it nothing here does anything.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.data.sampling import IndexBatch, OfflineIndex, own_size
from simgrad.mining.drawing import appended
from simgrad.models.base import Encoded
from simgrad.objectives.engine.ring import Processes

# What a broken connection is called, by the libraries below; their exceptions have no kind.
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "connectFullMesh")


class LostProcess(InputError):
    """Another process of this run has ended."""


@contextmanager
def together() -> Iterator[None]:
    """Join the processes that torchrun started, if it did, for as long as training lasts."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        with _naming_a_lost_process():
            yield
        return
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # What processes tell each other beside the work goes by gloo: a GPU need not be waited for,
    # and who is gone is noticed at once.
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    try:
        with _naming_a_lost_process():
            yield
    finally:
        with suppress(RuntimeError):  # of a process that is gone
            dist.destroy_process_group()


@contextmanager
def _naming_a_lost_process() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, dist.DistNetworkError) or any(t in str(error) for t in _LOST)
        if not lost or size() == 1:
            raise
        raise LostProcess(
            f"process {rank()} of {size()}: another process of this run has ended; it may have "
            "been killed, or its own message says why. Run the same command again to resume from "
            "the last checkpoint."
        ) from None


def wait() -> None:
    """Until every process is here."""
    any_of(False)


def size() -> int:
    """How many processes share a batch."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is."""
    return dist.get_rank() if size() > 1 else 0


def any_of(flag: bool) -> bool:
    """Whether it is true in any process. Every process has to call this."""
    if size() == 1:
        return flag
    told = torch.tensor([int(flag)])
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told.item())


def first(value: float) -> float:
    """The first process's number, in all of them."""
    if size() == 1:
        return value
    told = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(told, 0)
    return float(told.item())


def largest(count: int) -> int:
    """The largest count of all processes."""
    told = torch.tensor([count])
    if size() > 1:
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return int(told)


def before(count: int) -> int:
    """The sum of `count` over the processes before this one."""
    if size() == 1:
        return 0
    return sum(int(part) for part in Processes().gather(torch.tensor([[count]]))[: rank()])


def every(rows: Tensor) -> Tensor:
    """(k, ...) of all processes, in order. Only this process's rows pass a gradient on."""
    if size() == 1:
        return rows
    parts = Processes().gather(rows.detach())
    parts[rank()] = rows
    return torch.cat(parts)


def gather(own: Encoded) -> Encoded:
    """What all processes encoded, in order. The gradient of its own share is summed over them."""
    if size() == 1:
        return own
    tokens = mask = None
    if own.tokens is not None:
        more = largest(own.tokens.shape[1]) - own.tokens.shape[1]
        tokens = _joined(nn.functional.pad(own.tokens, (0, 0, 0, more)))
        mask = every(nn.functional.pad(own.real(), (0, more)).to(torch.uint8)).bool()
    return Encoded(None if own.vectors is None else _joined(own.vectors), tokens, mask)


def _joined(rows: Tensor) -> Tensor:
    joined: Tensor = _Joined.apply(rows)  # type: ignore[no-untyped-call]
    return joined


class _Joined(torch.autograd.Function):
    """Rows of all processes."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        parts = Processes().gather(own)
        start = sum(len(part) for part in parts[: rank()])
        ctx.rows = slice(start, start + len(own))
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.rows]


def total(value: Tensor) -> Tensor:
    """The sum over all processes, without a gradient."""
    if size() == 1:
        return value
    return Processes().sum(value.detach())


def add_gradients(model: nn.Module, learned: nn.Module) -> None:
    """Sum the processes' gradients, of the model and of what objectives learn."""
    if size() == 1:
        return
    every = [p for p in (*model.parameters(), *learned.parameters()) if p.requires_grad]
    used = torch.tensor([int(p.grad is not None) for p in every])
    dist.all_reduce(used, op=dist.ReduceOp.MAX)  # a process without a share may have none
    for parameter, there in zip(every, used.tolist(), strict=True):
        if there:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)


def own_share(index: IndexBatch) -> IndexBatch:
    """This process's part: images in order, as many as the others have, and their captions.

    What was drawn for these captions from outside the batch comes along.
    """
    world, place = size(), rank()
    if world == 1:
        return index
    count, m = own_size(index)
    first, stop = count * place // world, count * (place + 1) // world
    owner = index.image_of_caption[:m]
    mine = np.flatnonzero((owner >= first) & (owner < stop))
    if stop == first:
        return _nothing(index)
    images = np.arange(first, stop)
    if not isinstance(index, OfflineIndex):
        return IndexBatch(index.images[images], index.captions[mine], owner[mine] - first)
    places = {name: place[mine] for name, place in index.places().items()}
    rows, image = appended(images, [v for k, v in places.items() if k.endswith("image")])
    columns, caption = appended(mine, [v for k, v in places.items() if k.endswith("caption")])
    more = np.zeros(len(columns) - len(mine), dtype=np.int64)
    return replace(
        index,
        images=index.images[rows],
        captions=index.captions[columns],
        image_of_caption=np.concatenate([owner[mine] - first, more]),
        own_images=len(images),
        own_captions=len(mine),
        mined_caption=caption[0],
        mined_image=image[0],
        partner_image=image[1],
        partner_caption=caption[1],
    )


def every_share(index: IndexBatch) -> IndexBatch:
    """The whole batch, gathered from the shares of all processes, without what was drawn."""
    if size() == 1:
        return index
    n, m = own_size(index)
    parts = index.images[:n], index.captions[:m]
    owner = index.image_of_caption[:m] + before(n)
    images, captions, owners = (
        every(torch.from_numpy(np.ascontiguousarray(part))).numpy() for part in (*parts, owner)
    )
    return IndexBatch(images, captions, owners)


def _nothing(index: IndexBatch) -> IndexBatch:
    """A process without a pair: one image and caption as input for its encoders, with no weight."""
    none = np.zeros(0, dtype=np.int64)
    return OfflineIndex(
        index.images[:1],
        index.captions[:1],
        np.zeros(1, dtype=np.int64),
        for_each=1,
        mined_caption=none,
        mined_image=none,
        partner_image=none,
        partner_caption=none,
    )
