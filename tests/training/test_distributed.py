"""Two processes on one batch give the gradient of one process: every objective, sets, GradCache."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from simgrad.objectives import objectives
from simgrad.training import train
from tests.training.lists import random_lists
from tests.training.test_step import CAPTIONER, SCAN, VSE

NAMES = [d.name for d in objectives]


def work(rank: int, world: int, port: int, folder: str, model: str, micro: int | None) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )
    from simgrad.data import Sampler
    from simgrad.runs.outside import draw_of
    from simgrad.runs.recipe import Recipe
    from tests.training.test_step import make

    found: dict[str, Any] = {}
    names = NAMES if model == VSE else ["triplet-sh", "adap-off-quin"]
    # In a batch of one caption there is no share for the other process.
    for name, batch in [*((name, 25) for name in names), ("triplet-sh", 1)]:
        step, source = make(model, Recipe(objective=name, depth=10, clip=0.0, micro_batch=micro))
        for module in step.model.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.eval()  # each process has statistics of its own share
        plan: Any = Sampler("pairs", batch, seed=3).epoch(source.split, 0)[:1]
        if step.objectives[name].needs_offline:
            lists = random_lists(source.split, 10)
            plan = draw_of(step.recipe, source.split, lists).epoch(plan, 0)
        value = step.update(source.fetch(plan[0]), name)
        for key, parameter in [*step.model.named_parameters(), *step.learned.named_parameters()]:
            if parameter.grad is not None:
                found[f"{name}/{batch}/{key}"] = parameter.grad
        found[f"{name}/{batch}/value"] = value.reshape(1)
    if rank == 0:
        torch.save(found, Path(folder) / f"{world}.pt")
    if world > 1:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("model", "micro"),
    [(VSE, None), (SCAN, None), (SCAN, 4), (CAPTIONER, None)],
)
def test_two_processes_give_the_gradient_of_one(
    tmp_path: Path, model: str, micro: int | None
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = (port, str(tmp_path), model, micro)
    work(0, 1, *settings)
    mp.start_processes(  # type: ignore[no-untyped-call]
        work, (2, *settings), nprocs=2, start_method="spawn"
    )
    one, two = (torch.load(tmp_path / f"{n}.pt", weights_only=True) for n in (1, 2))
    assert one.keys() <= two.keys()
    for key in two:
        wanted = one.get(key, torch.zeros(1))
        assert (wanted - two[key]).norm() <= 1e-5 * wanted.norm() + 1e-6, key


def test_processes_stay_together_between_two_rounds(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[int] = []

    @contextmanager
    def together() -> Iterator[None]:
        inside.append((inside or [0])[-1] + 1)
        yield
        inside.append(inside[-1] - 1)

    monkeypatch.setattr("simgrad.training.distributed.together", together)
    second = {"objective": "off-tri", "epochs": 1, "depth": 10}
    train(small(epochs=1, second_round=second), tmp_path / "run", quiet=True)
    assert inside == [1, 2, 1, 2, 1, 0]  # both rounds within one meeting
