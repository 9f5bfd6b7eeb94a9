"""A study file finds the user's own file that the folder it goes on in was begun with."""

import os
from pathlib import Path

import pytest

from simgrad.cli.study import study
from simgrad.studies.study import Study
from tests.processes import simgrad

OWN = """
import simgrad

@simgrad.objectives.declare("mine", description="pushes negatives by their similarity")
def mine(similarities, positives, pairs):
    return (similarities.masked_fill(positives, 0) ** 2).sum(1) - (similarities * positives).sum(1)
"""
PLAN = """
title: mine
recipe: {data: "scenes(train=8, val=4, test=4, features=global)", epochs: 1, batch: 8,
         model: "vse++(dimension=4, word_dimension=4)"}
grid: {objective: [mine]}
seeds: 1
"""


@pytest.mark.long
def test_it_need_not_be_named_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "plan.yaml").write_text(PLAN)
    environment = {**os.environ, "SIMGRAD_CACHE": str(tmp_path / "cache")}

    def run(*words: str) -> str:
        command = (*words, "study", "plan.yaml", "--output", "study", "--processes", "1")
        done = simgrad(*command, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    run("--with", "mine.py")
    (tmp_path / "plan.yaml").write_text(PLAN.replace("seeds: 1", "seeds: 2"))
    assert "mine.py" in run()


def test_files_of_other_studies_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `plan` and `plan-b`, whose files declare the same name."""
    monkeypatch.chdir(tmp_path)
    read: list[Path] = []
    monkeypatch.setattr(Study, "bring_back_files", lambda self: read.append(self.path))
    (tmp_path / "plan.yaml").write_text(PLAN.replace("mine", "triplet"))
    for name in ("plan", "plan-b", "plan-scenes"):
        (tmp_path / "studies" / name).mkdir(parents=True)
    study("plan.yaml", dry_run=True)
    assert read == [Path("studies/plan")]
    read.clear()
    study("plan.yaml", data="scenes", dry_run=True)
    assert read == [Path("studies/plan-scenes")]
    read.clear()
    study("plan.yaml", output="elsewhere", dry_run=True)
    assert read == [Path("elsewhere")]


MODEL = """
from dataclasses import dataclass
from simgrad.models.base import models
from simgrad.models.vsepp import VsePlusPlus

@models.declare("own-vse", paper="", description="VSE++ under another name")
@dataclass(frozen=True)
class Own(VsePlusPlus):
    pass
"""


@pytest.mark.long
def test_a_run_s_own_model_need_not_be_named_again(tmp_path: Path) -> None:
    """`search`, `mine` and Python's `Run.load` open the checkpoint before the recipe."""
    (tmp_path / "own.py").write_text(MODEL)
    environment = {**os.environ, "SIMGRAD_CACHE": str(tmp_path / "cache")}
    data = "scenes(train=8, val=4, test=4, features=global)"
    train = ("train", "--model", "own-vse(dimension=4, word_dimension=4)", "--data", data)
    for command in (
        ("--with", "own.py", *train, "--epochs", "1", "--batch", "8", "--output", "run"),
        ("mine", "run", "--output", "lists", "--depth", "2"),
    ):
        done = simgrad(*command, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
