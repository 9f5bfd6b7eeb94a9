"""Several processes on one run stop at the same step, whichever of them was asked."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.runs.recipe import Recipe
from simgrad.training import Run, distributed, train
from simgrad.training.loop import Step
from simgrad.training.sitting import politely, stop_asked
from tests.processes import free_port, started
from tests.training.conftest import DATA

ASKED_AT = 7


def work(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    recipe = Recipe(
        data=DATA, model="vse++(dimension=16, word_dimension=8)", batch=32, epochs=2, lr=1e-3,
        evaluate_every=4, device="cpu", workers=0, min_count=1, early_stop=9,
    )  # fmt: skip
    with distributed.together():
        train(recipe, Path(folder) / "whole", quiet=True)
        update, steps = Step.update, iter(range(1, 1000))

        def asked(step: Step, *arguments: Any, **named: Any) -> Any:
            if next(steps) == ASKED_AT and rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return update(step, *arguments, **named)

        Step.update = asked  # type: ignore[method-assign]
        stopped = train(recipe, Path(folder) / "parts", quiet=True)
        assert stopped.info["status"] == "stopped"
        assert stopped.info["steps"] == ASKED_AT
        train(recipe, Path(folder) / "parts", quiet=True)


@pytest.mark.long
def test_a_signal_to_one_process_stops_all_at_the_same_step(tmp_path: Path, weights: Any) -> None:
    crew = started(work, 2, free_port(), str(tmp_path))
    for one in crew:
        one.join(120)
    assert [one.exitcode for one in crew] == [0, 0]
    whole, parts = Run(tmp_path / "whole"), Run(tmp_path / "parts")
    assert parts.finished
    assert parts.info["steps"] == whole.info["steps"] == 20
    one, other = weights(whole.path), weights(parts.path)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_was_asked_between_two_runs_stays_asked() -> None:
    """A worker is polite around its runs, and each run is polite too."""
    with politely():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop_asked()
        with politely():
            assert stop_asked()
        assert stop_asked()
    with politely():  # another command of the same process
        assert not stop_asked()
