"""A study file finds the user's own file that the folder it goes on in was begun with."""

import os
from pathlib import Path

import pytest

from simgrad.cli.study import study
from simgrad.core import extras
from simgrad.core.errors import InputError
from simgrad.core.files import sha256
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


def test_what_is_hashed_is_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that somebody replaces meanwhile: neither does its new text run, nor is it trusted."""
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(extras, "_imported", {})
    monkeypatch.setenv("SIMGRAD_WITH", "")
    file, ran = tmp_path / "own.py", tmp_path / "ran"
    kind = "import pathlib; pathlib.Path({!r}).write_text({!r})"
    good, bad = (kind.format(str(ran), word) for word in ("good", "bad"))
    file.write_text(good)
    read = Path.read_bytes

    def replaced(path: Path) -> bytes:
        found = read(path)
        if path == file:
            file.write_text(bad)
        return found

    monkeypatch.setattr(Path, "read_bytes", replaced)
    extras.import_file(file)
    assert ran.read_text() == "good"
    hashed = extras.imported()[0]["sha256"]
    monkeypatch.setattr(Path, "read_bytes", read)
    file.write_text(good)
    assert hashed == sha256(file)

    # Trusted by now, as it was; replaced between the look and the import.
    monkeypatch.setattr(extras, "_imported", {})

    def looked(path: Path, hashed: str) -> None:
        file.write_text(bad)

    monkeypatch.setattr(extras, "_problem", looked)
    with pytest.raises(InputError, match="changed just now"):
        extras.bring_back(tmp_path, [{"path": str(file), "sha256": hashed}])
    assert ran.read_text() == "good"
