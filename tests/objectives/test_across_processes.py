"""A batch that lies on several processes: loss and gradients of one process on all of it."""

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import simgrad
from simgrad.core.errors import InputError
from simgrad.objectives import objective
from simgrad.objectives.engine.ring import Processes

from .processes import Workers
from .shares import equal_to_one_process

pytestmark = pytest.mark.long
WORLD = 4


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers(WORLD)
    yield found
    found.stop()


def _last(world: int) -> "dist.ProcessGroup | None":
    """A group of the last processes, where ranks of the group are not those of all; None: all."""
    return None if world == WORLD else dist.new_group(list(range(WORLD - world, WORLD)))


def equal(world: int, kind: torch.dtype) -> None:
    group = _last(world)
    if dist.get_rank(group) >= 0:  # of the group
        equal_to_one_process(Processes(group), kind)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_equal_to_one_process(world: int, workers: Workers) -> None:
    workers.run(equal, world, torch.float64)


def test_equal_to_one_process_in_float32(workers: Workers) -> None:
    workers.run(equal, 3, torch.float32)


def is_checked() -> None:
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    x, y = (torch.randn(5 + rank, 6, generator=generator).requires_grad_() for _ in range(2))
    index = torch.arange(5 + rank)
    simgrad.distributed("nt-xent", check=True)(x, y, index).backward()
    # A share that another process never sees: what one process makes of all of it is not this.
    spread = simgrad.distributed("nt-xent", check=True)
    real = spread.objective.forward
    spread.objective.forward = lambda *given, **named: 2 * real(*given, **named)  # type: ignore[method-assign]
    with pytest.raises(InputError, match="whole batch"):
        spread(x, y, index)


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.text = nn.Linear(6, 5), nn.Linear(7, 5)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.image(x), self.text(y)


def loops() -> None:
    """Loops that average (DDP), or add, told so or told wrong; and one that clips."""
    rank = dist.get_rank()
    for loop, gradients, words in (
        ("averages", "mean", ""), ("adds", "sum", ""), ("averages", "sum", "Use gradients='mean'"),
        ("adds", "mean", "Use gradients='sum'"), ("clips", "mean", "cannot be compared"),
        ("locks", "mean", ""), ("locks", "sum", "Use gradients='mean'"),
    ):  # fmt: skip
        both = Towers()
        both.text.requires_grad_(loop != "locks")
        towers = both if loop == "adds" else DistributedDataParallel(both)
        optimizer = torch.optim.SGD(towers.parameters(), 0.1)
        spread = simgrad.distributed("siglip", gradients=gradients, check=True)  # type: ignore[arg-type]
        torch.manual_seed(rank)
        x, y = torch.randn(4 + rank, 6), torch.randn(4 + rank, 7)
        spread(*towers(x, y)).backward()
        for p in towers.parameters() if loop == "adds" else ():
            assert p.grad is not None
            dist.all_reduce(p.grad)
        if loop == "clips":
            nn.utils.clip_grad_norm_(towers.parameters(), 1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if not words:
                optimizer.step()
            else:
                with pytest.raises((InputError, UserWarning), match=words):
                    optimizer.step()
        optimizer.step()  # looked at once


def test_a_loop_that_does_otherwise_is_found_by_the_check(workers: Workers) -> None:
    workers.run(loops)


def test_a_wrong_gradient_is_found_by_the_check(workers: Workers) -> None:
    workers.run(is_checked)


def test_without_other_processes_it_is_the_objective_itself() -> None:
    x, y = (torch.randn(6, 5).requires_grad_() for _ in range(2))
    for gradients in ("mean", "sum"):
        spread = simgrad.distributed("siglip", gradients=gradients)  # type: ignore[arg-type]
        torch.testing.assert_close(spread(x, y), objective("siglip")(x, y))
    assert [name for name, _ in spread.named_parameters()] == [
        "objective.log_scale",
        "objective.bias",
    ]
    with pytest.raises(InputError, match="mean"):
        simgrad.distributed("siglip", gradients="average")  # type: ignore[arg-type]


def is_sharded() -> None:
    """Two steps with `fully_shard`, model and objective, and the same on one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (WORLD,))
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4 * WORLD, 6, generator=generator) for _ in range(2))
    mine = slice(4 * rank, 4 * rank + 4)
    for spec in ("siglip", "nt-xent(learned=true)"):
        found = []
        for sharded in (False, True):
            torch.manual_seed(0)
            model, o = nn.Linear(6, 5), objective(spec)
            loss: nn.Module = o
            if sharded:
                fully_shard(model, mesh=mesh)
                loss = simgrad.distributed(o)
                fully_shard(loss, mesh=mesh)
            optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.1)
            for _ in range(2):
                images, texts = (x[mine], y[mine]) if sharded else (x, y)
                optimizer.zero_grad()
                loss(model(images), model(texts)).backward()
                optimizer.step()
            learned = [*model.parameters(), *loss.parameters()]
            found.append([p.full_tensor() if sharded else p.detach() for p in learned])  # type: ignore[attr-defined]
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_is_learned_can_be_sharded(workers: Workers) -> None:
    workers.run(is_sharded)
