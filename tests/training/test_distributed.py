"""Several processes on one batch: the gradient of one, and one end for all of them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.data import Sampler, Split
from simgrad.objectives import objectives
from simgrad.runs.found_pairs import FoundPairs
from simgrad.runs.offline_draws import draw_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.training import train
from simgrad.training.distributed import own_share
from simgrad.training.loop import Step
from tests.processes import LOADED, free_port, started, together
from tests.training.lists import random_lists
from tests.training.test_step import CAPTIONER, SCAN, VSE, make

LOADED.append(__name__)  # forked processes have it already
NAMES = [d.name for d in objectives]


# With pairs that nobody had marked: positive, or to be ignored.
FOUND = ("nt-xent", "siglip", "triplet-sh")


def found_in(split: Split, name: str) -> FoundPairs:
    """Some of all pairs, so that images and captions of different processes are among them."""
    every = np.arange(split.num_images * split.num_captions)
    owner = np.repeat(np.arange(split.num_images), split.num_captions)
    strange = every[owner != split.image_of_caption[every % split.num_captions]]
    positive = strange[::11] if name != "triplet-sh" else strange[:0]
    return FoundPairs(positive, np.setdiff1d(strange[5::7], positive), split.num_captions)


CASES = [(VSE, None), (SCAN, None), (SCAN, 4), (CAPTIONER, None)]


def steps(rank: int, world: int, folder: str) -> None:
    """A step of every case: its loss, and the gradients that all processes end up with."""
    for case, (model, micro) in enumerate(CASES):
        found: dict[str, Any] = {}
        names = NAMES if model == VSE else ["triplet-sh", "adap-off-quin", "siglip"]
        # In a batch of one caption there is no share for the other processes.
        for name, batch in [*((name, 25) for name in names), ("triplet-sh", 1)]:
            recipe = Recipe(objective=name, depth=10, clip=0.0, micro_batch=micro)
            step, source = make(model, recipe)
            if name in FOUND and batch > 1:
                step.found = found_in(source.split, name)
            for module in step.model.modules():
                if isinstance(module, torch.nn.BatchNorm1d):
                    module.eval()  # each process has statistics of its own share
            plan: Any = Sampler("pairs", batch, seed=3).epoch(source.split, 0)[:1]
            if step.objectives[name].needs_offline:
                lists = random_lists(source.split, 10)
                plan = draw_of(step.recipe, source.split, lists).epoch(plan, 0)
            value = step.update(source.fetch(own_share(plan[0])), step.objectives[name])
            found[f"{name}/{batch}/value"] = value.reshape(1)
            parameters = [*step.model.named_parameters(), *step.learned.named_parameters()]
            found |= {f"{name}/{batch}/{k}": p.grad for k, p in parameters if p.grad is not None}
        if rank == world - 1:
            torch.save(found, Path(folder) / f"{world}-{case}.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("steps")
    steps(0, 1, str(found))
    together(steps, 3, str(found))
    return found


@pytest.mark.long
@pytest.mark.parametrize("case", range(len(CASES)))
def test_three_processes_give_the_gradient_of_one(folder: Path, case: int) -> None:
    one, two = (torch.load(folder / f"{n}-{case}.pt", weights_only=True) for n in (1, 3))
    assert one.keys() == two.keys()
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


def test_the_time_given_is_that_of_both_rounds(small: Any, tmp_path: Path, weights: Any) -> None:
    second = {"objective": "off-tri", "epochs": 1, "depth": 10}
    recipe = small(epochs=1, batch=150, second_round=second)
    whole = train(recipe, tmp_path / "whole", quiet=True)
    sittings = 0
    while not sittings or not Run(tmp_path / "parts").finished:
        train(recipe, tmp_path / "parts", quiet=True, stop_after=0.0)
        sittings += 1
    assert sittings >= whole.info["steps"] + Run(tmp_path / "whole" / "round1").info["steps"] - 1
    parts, together = weights(tmp_path / "parts"), weights(tmp_path / "whole")
    assert all(torch.equal(parts[name], value) for name, value in together.items())


def sitting(
    rank: int, port: int, folder: str, recipe: Recipe, at: int, who: int, what: int | None
) -> None:
    """Train as torchrun starts it; after step `at` one process gets a signal. Tell how it went."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    os.environ |= dict(zip(names, map(str, (rank, 4, "127.0.0.1", port)), strict=True))
    torch.set_num_threads(1)
    update, done = Step.update, 0

    def counted(*given: Any) -> Any:
        nonlocal done
        loss = update(*given)
        done += 1
        if what is not None and (done, rank) == (at, who):
            Path(folder, "signal").touch()
            os.kill(os.getpid(), what)
        return loss

    Step.update = counted  # type: ignore[method-assign]
    try:
        train(recipe, folder, quiet=True)
        told = str(done)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    Path(folder, f"told-{rank}").write_text(told)


def sit(folder: Path, recipe: Recipe, at: int, who: int, what: int | None) -> tuple[Any, list[str]]:
    port = free_port()
    crew = started(sitting, 4, port, str(folder), recipe, at, who, what)
    for one in crew:
        one.join(60)
    return crew, [(folder / f"told-{rank}").read_text() for rank in range(4) if rank != who]


@pytest.mark.long
def test_processes_that_are_killed_or_stopped(small: Any, tmp_path: Path, weights: Any) -> None:
    recipe = small(objective="nt-xent(learned=true)", batch=64, checkpoint_seconds=0.0)
    folder = tmp_path / "run"
    folder.mkdir()
    crew, told = sit(folder, recipe, 3, 2, signal.SIGKILL)  # the others end, and say why
    assert crew[2].exitcode == -signal.SIGKILL
    assert all("another process of this run has ended" in text for text in told), told
    ended = max((folder / f"told-{rank}").stat().st_mtime for rank in (0, 1, 3))
    assert ended - (folder / "signal").stat().st_mtime < 15
    assert not Run(folder).finished
    _, told = sit(folder, recipe, 2, 3, signal.SIGTERM)  # one is asked to stop: all do, there
    assert told == ["2"] * 3
    assert (folder / "told-3").read_text() == "2"
    assert Run(folder).info["status"] == "stopped"
    sit(folder, recipe, 0, 0, None)  # the rest
    assert Run(folder).finished
    train(recipe, tmp_path / "one", quiet=True)
    one, four = weights(tmp_path / "one"), weights(folder)
    for name, wanted in one.items():
        torch.testing.assert_close(four[name], wanted, rtol=2e-3, atol=2e-4, msg=name)
