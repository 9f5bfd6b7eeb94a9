"""Two processes on one batch give the gradient of one process, for every objective."""

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from simgrad.objectives import objectives

NAMES = [d.name for d in objectives]


def work(rank: int, world: int, port: int, folder: str, model: str) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )
    from simgrad.data import Sampler
    from simgrad.training.mining import Candidates
    from simgrad.training.offline import Draw
    from simgrad.training.recipe import Recipe
    from tests.training.test_step import make

    found: dict[str, Any] = {}
    for name in NAMES if model.startswith("vse") else ["triplet-sh", "adap-off-quin"]:
        step, source = make(model, Recipe(objective=name, depth=10, clip=0.0))
        plan: Any = Sampler("pairs", 25, seed=3).epoch(source.split, 0)[:1]
        if step.objectives[name].needs_offline:
            random = np.random.default_rng(0)
            split = source.split
            i2t = random.integers(0, split.num_captions, (split.num_images, 10)).astype(np.int32)
            t2i = random.integers(0, split.num_images, (split.num_captions, 10)).astype(np.int32)
            plan = Draw(split, Candidates(i2t, t2i, {}), step.recipe).epoch(plan, 0)
        value = step.update(source.fetch(plan[0]), name)
        for key, parameter in [*step.model.named_parameters(), *step.learned.named_parameters()]:
            if parameter.grad is not None:
                found[f"{name}/{key}"] = parameter.grad
        found[f"{name}/value"] = value.reshape(1)
    if rank == 0:
        torch.save(found, Path(folder) / f"{world}.pt")
    if world > 1:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    "model", ["vse++(dimension=16, word_dimension=8)", "scan(dimension=16, word_dimension=8)"]
)
def test_two_processes_give_the_gradient_of_one(tmp_path: Path, model: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    work(0, 1, port, str(tmp_path), model)
    mp.start_processes(  # type: ignore[no-untyped-call]
        work, (2, port, str(tmp_path), model), nprocs=2, start_method="spawn"
    )
    one, two = (torch.load(tmp_path / f"{n}.pt", weights_only=True) for n in (1, 2))
    assert one.keys() == two.keys()
    for key in one:
        assert (one[key] - two[key]).norm() <= 1e-5 * one[key].norm() + 1e-6, key
