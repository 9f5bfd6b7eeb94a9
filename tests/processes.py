"""Several processes for a test, joined by gloo. They are forked from one that has imported all."""

import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable
from typing import Any

LOADED = ["torch.distributed", "simgrad", "simgrad.training.loop"]


def together(work: Callable[..., None], world: int, *given: Any, seconds: float = 120) -> None:
    """`work(rank, world, *given)` in so many processes; an error in one of them is one here."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        crew = started(_process, world, work, world, store, given)
        end = time.monotonic() + seconds
        try:
            while any(one.exitcode is None for one in crew):
                failed = [one.exitcode for one in crew if one.exitcode]
                assert not failed, f"a process failed: {failed}"
                assert time.monotonic() < end, f"{work.__name__}: still at work"
                time.sleep(0.02)
            assert not any(one.exitcode for one in crew), [one.exitcode for one in crew]
        finally:
            for one in crew:
                one.kill()
                one.join()


def started(work: Callable[..., None], count: int, *given: Any) -> list[Any]:
    """Processes that do `work(rank, *given)`, on their way."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    crew = [context.Process(target=work, args=(rank, *given), daemon=True) for rank in range(count)]
    for one in crew:
        one.start()
    return crew


def free_port() -> int:
    """That nobody listens at just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _process(
    rank: int, work: Callable[..., None], world: int, store: str, given: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        work(rank, world, *given)
    finally:
        dist.destroy_process_group()
