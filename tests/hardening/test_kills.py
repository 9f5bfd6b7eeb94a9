"""Killed at any moment, nothing is lost: the result is that of a job nobody touched."""

from pathlib import Path

import pytest

from simgrad.runs.run import LAST
from simgrad.studies.study import Study
from tests.hardening.jobs import other_jobs, outcome_of_run, recipe, run_job, study_job
from tests.hardening.kills import Torment


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_job().work(folder)
    return folder


@pytest.mark.long
def test_a_run_is_killed_four_times(tmp_path: Path) -> None:
    torment = Torment(run_job(), tmp_path)
    torment(4)
    assert torment.kills >= 4
    assert torment.completed >= 1


@pytest.mark.long
def test_a_study_is_killed_three_times(tmp_path: Path) -> None:
    torment = Torment(study_job(), tmp_path)
    torment(3)
    assert torment.kills >= 3
    assert torment.completed >= 1


def test_a_kill_between_the_last_word_and_the_last_checkpoint(tmp_path: Path) -> None:
    job = study_job()
    job.work(tmp_path)
    expected = job.outcome(tmp_path)
    (run, _), *_ = Study.open(tmp_path).jobs()
    (run / LAST).mkdir(exist_ok=True)
    (run / LAST / "state.safetensors").write_bytes(b"x")  # finished, and not yet forgotten
    job.work(tmp_path)
    assert job.outcome(tmp_path) == expected


@pytest.mark.long
def test_mining_is_killed_at_every_rename(finished: Path, tmp_path: Path) -> None:
    torment = Torment(other_jobs(finished)[1], tmp_path)
    torment.at_every_rename()
    assert torment.kills == 10  # lists and scores of both ways, and the JSON: before and after


@pytest.mark.slow
def test_a_run_is_killed_at_every_rename(tmp_path: Path) -> None:
    torment = Torment(run_job(), tmp_path)
    torment.at_every_rename()
    assert torment.kills > 60


@pytest.mark.long
@pytest.mark.parametrize("which", range(5))
def test_everything_else_is_killed_too(which: int, finished: Path, tmp_path: Path) -> None:
    torment = Torment(other_jobs(finished)[which], tmp_path, seed=which)
    torment(3)
    assert torment.kills >= 3


def test_the_comparison_would_notice(finished: Path, tmp_path: Path) -> None:
    from simgrad.training import train

    other = recipe(objective="nt-xent(learned=true)", seed=1)
    train(other, tmp_path / "other", quiet=True)
    assert outcome_of_run(tmp_path / "other")["weights"] != outcome_of_run(finished)["weights"]
