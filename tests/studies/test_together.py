"""Studies whose runs take their steps together, several to a process."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.engine import crew_for
from simgrad.studies.study import Study
from simgrad.studies.trials import Trials
from simgrad.studies.worker import work, work_together
from simgrad.training import common_step, grouped
from simgrad.training.state import remembered
from simgrad.training.trouble import TrainingError
from tests.studies import small_study
from tests.studies.test_study import SMALL, plan


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs took each common step."""
    seen: list[int] = []
    step = common_step.CommonStep.step

    def noted(self: common_step.CommonStep, members: list[grouped.GroupedRun]) -> None:
        seen.append(len(members))
        step(self, members)

    monkeypatch.setattr(common_step.CommonStep, "step", noted)
    return seen


@pytest.mark.long
def test_a_study_has_the_same_table(tmp_path: Path, most: list[int]) -> None:
    """Also with a row of another model, one that cannot be read, and rows of two rounds."""
    second = {"objective": "off-tri", "epochs": 1, "depth": 20}
    rows = [
        {"label": "first"},
        {"label": "clipped", "set": {"clip": 0.1, "objective": "nt-xent"}},
        {"label": "deep", "set": {"model": "vse++(dimension=16, word_dimension=8, gru_layers=2)"}},
        {"label": "two", "set": {"second_round": second}},
        {"label": "bad", "set": {"data": str(tmp_path / "nothing")}},
    ]
    fields = {**SMALL["recipe"], "objective": "triplet-sh"}
    chosen = plan(recipe=fields, grid={}, rows=rows, seeds=2)
    alone = Study.create(chosen, tmp_path / "alone")
    together = Study.create(chosen, tmp_path / "together")
    assert work(alone) == 2
    assert not most
    assert work_together(together, 3) >= 2  # each thread has tried what cannot be read
    assert max(most) > 1
    for (mine, _), (theirs, _) in zip(alone.jobs(), together.jobs(), strict=True):
        assert Run(mine).finished == Run(theirs).finished
        for a, b in zip(Run(mine).history, Run(theirs).history, strict=True):
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
            assert a["val"]["rsum"] == pytest.approx(b["val"]["rsum"], abs=10)
        if Run(mine).finished:
            assert Run(mine).test["rsum"] == pytest.approx(Run(theirs).test["rsum"], abs=10)


@pytest.mark.long
def test_a_tuned_study_is_searched_and_trained(tmp_path: Path, most: list[int]) -> None:
    study = Study.create(small_study.plan(tune={"trials": 3, "finalists": 2}), tmp_path / "study")
    assert work_together(study, 3) == 0
    assert max(most) > 1
    for tuning in study.tunings:
        assert [t.number for t in tuning.search.trials() if t.state == "complete"] == [0, 1, 2]
        assert tuning.record is not None
    assert study.complete


def test_runs_that_train_together_have_the_same_objective(tmp_path: Path) -> None:
    """Rows are searched one after the other, from the replicate on with which a process begins."""
    tune = {"trials": 3, "replicates": 4, "splits": "new", "finalists": 2}
    study = Study.create(small_study.plan(tune=tune), tmp_path / "study")
    tried: list[tuple[int, str]] = []

    def note(folder: Path, recipe: Recipe) -> Exception:
        tried.append((recipe.seed, recipe.objective.partition("(")[0]))
        return TrainingError("not trained")

    Trials(study.tunings, note, start=0.5, in_turn=False).work()
    trials, each = 3, 3 * len(study.plan.rows)
    assert len(tried) == 4 * each
    for first in range(0, len(tried), trials):
        assert len({objective for _, objective in tried[first : first + trials]}) == 1
    firsts = [min(seed for seed, _ in tried[k * each : (k + 1) * each]) for k in range(4)]
    assert firsts == [*sorted(firsts)[2:], *sorted(firsts)[:2]]


@pytest.mark.long
def test_runs_of_a_killed_worker_resume(tmp_path: Path) -> None:
    """Each from its last checkpoint, or from its start."""
    fields = {**SMALL["recipe"], "epochs": 15, "checkpoint_seconds": 0.0, "threads": 1}
    chosen = plan(recipe=fields, seeds=2)
    study = Study.create(chosen, tmp_path / "study")
    command = [sys.executable, "-m", "simgrad.studies.worker", str(study.path), "3"]
    worker = subprocess.Popen(command)
    until = time.monotonic() + 60
    while sum(remembered(path / "last") for path, _ in study.jobs()) < 2:
        assert time.monotonic() < until
        assert worker.poll() is None
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    begun = [path for path, _ in study.jobs() if remembered(path / "last")]
    assert begun
    assert work_together(study, 2) == 0
    assert study.complete
    for path in begun:
        assert [entry["epoch"] for entry in Run(path).history] == [float(k + 1) for k in range(15)]


def test_a_gpu_is_given_groups_where_all_rows_can_be_taken_together(tmp_path: Path) -> None:
    chosen = plan(seeds=45)
    study = Study.create(chosen, tmp_path / "study")
    left = len(study.jobs())
    crew = crew_for(study, None, cores=16, gpus=1)
    assert crew.processes * crew.together <= 32
    turns = -(-left // 32)
    assert crew.processes * crew.together * turns >= left
    assert crew_for(study, 5, cores=16, gpus=1).together == 1  # as asked
    assert crew_for(study, None, cores=16, gpus=0).together == 1
    deep = {**SMALL["recipe"], "model": "vse++(dimension=16, gru_layers=2)"}
    other = Study.create(plan(recipe=deep, seeds=45), tmp_path / "other")
    assert crew_for(other, None, cores=16, gpus=1) == crew_for(other, 16, cores=16, gpus=1)
