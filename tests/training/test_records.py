"""What a run notes while it goes on, whether it was stopped on the way or not."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simgrad.core.errors import InputError
from simgrad.retriever.prepare import prepare
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.training import train
from simgrad.training.display import Display
from simgrad.training.loop import Training
from simgrad.training.records import ATTENTION


def test_attention_is_noted_every_so_many_steps_and_goes_on_where_it_stopped(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    recipe = small(objective="nt-xent", attention_every=3, epochs=2)
    whole = train(recipe, tmp_path / "whole", dataset=scenes, quiet=True)
    lines = (tmp_path / "whole" / ATTENTION).read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [entry["step"] for entry in noted] == list(range(3, whole.info["steps"] + 1, 3))
    assert all(entry["attention"]["i2t"]["effective"] > 0 for entry in noted)
    # A checkpoint at step 5, then on to step 8 without one, and a kill.
    stopped = Training(recipe, tmp_path / "cut", prepare(recipe, scenes), True)
    recipe.save(tmp_path / "cut" / "recipe.yaml")
    asked = iter([False] * 4 + [True])
    stopped.go(lambda: next(asked))
    with open(tmp_path / "cut" / ATTENTION, "a") as file:
        file.write(lines[1] + "\n" + '{"step": 9, "at')
    train(recipe, tmp_path / "cut", dataset=scenes, quiet=True)
    assert (tmp_path / "cut" / ATTENTION).read_text().splitlines() == lines
    assert len(Run(tmp_path / "cut").history) == len(whole.history)


class Board:
    """Stands for TensorBoard's writer."""

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step = folder, purge_step
        self.told: list[tuple[str, float, int]] = []
        boards.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def flush(self) -> None: ...

    def close(self) -> None: ...


boards: list[Board] = []


def test_tensorboard_gets_the_same_figures(
    small: Any, scenes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Board)
    )
    run = train(small(log="tensorboard"), tmp_path / "run", dataset=scenes, quiet=True)
    (board,) = boards
    assert board.folder == str(tmp_path / "run" / "tensorboard")
    for entry in run.history:
        assert ("val/rsum", entry["val"]["rsum"], entry["step"]) in board.told
        assert ("loss", entry["loss"], entry["step"]) in board.told


def test_tensorboard_that_is_not_there_is_told_before_the_run(
    small: Any, scenes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'simgrad\[tensorboard\]'"):
        train(small(log="tensorboard"), tmp_path / "run", dataset=scenes, quiet=True)


def test_progress_names_the_objective_of_the_first_epochs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = Display(Recipe(first_objective="triplet", first_epochs=1), quiet=False)
    entry = {"step": 4, "loss": 1.0, "samples_per_second": 10.0, "val": {"rsum": 1.0}}
    for epoch in (0.5, 1, 1.5, 2):
        display.evaluated({**entry, "epoch": epoch}, on_cpu=False)
    told = ["(triplet)" in line for line in capsys.readouterr().err.splitlines()]
    assert told == [True, True, False, False]
