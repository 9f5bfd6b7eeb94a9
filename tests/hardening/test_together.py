"""Two at once: one waits or declines with a reason; the result is that of one after the other."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from simgrad.core.errors import InputError
from simgrad.runs.run import Run, write_info
from simgrad.studies.study import Study
from simgrad.studies.worker import work
from tests.hardening.jobs import Job, other_jobs, run_job, study_job
from tests.hardening.kills import ended, in_child, leftovers

DECLINED = 7


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_job().work(folder)
    return folder


def politely(work: Callable[[], object]) -> Callable[[], object]:
    """The work; declined for a reason that names the other process, it exits with 7."""

    def attempt() -> None:
        try:
            work()
        except InputError as error:
            if "another process" in str(error):
                os._exit(DECLINED)
            raise

    return attempt


def both(job: Job, folder: Path) -> list[int]:
    children = [in_child(politely(lambda: job.work(folder))) for _ in range(2)]
    return sorted(ended(child) for child in children)


def test_the_same_run(tmp_path: Path) -> None:
    job = run_job()
    job.work(tmp_path / "alone")
    assert both(job, tmp_path / "run") == [0, DECLINED]
    assert job.outcome(tmp_path / "run") == job.outcome(tmp_path / "alone")


def test_the_same_study(tmp_path: Path) -> None:
    job = study_job()
    job.work(tmp_path / "alone")
    assert both(job, tmp_path / "study") == [0, 0]
    assert job.outcome(tmp_path / "study") == job.outcome(tmp_path / "alone")


@pytest.mark.parametrize(
    ("which", "codes"), [(0, {0, DECLINED}), *((which, {0}) for which in range(1, 5))]
)
def test_the_same_features_candidates_index_import_and_report(
    which: int, codes: set[int], finished: Path, tmp_path: Path
) -> None:
    job = other_jobs(finished)[which]
    if job.name == "index":  # its run must be there
        (tmp_path / "two").mkdir()
        for name in ("best", "recipe.yaml", "run.json"):
            (tmp_path / "two" / name).symlink_to(finished / name)
    job.work(tmp_path / "alone")
    assert set(both(job, tmp_path / "two")) <= codes
    assert job.outcome(tmp_path / "two") == job.outcome(tmp_path / "alone")
    assert not leftovers(tmp_path)


def test_the_same_entry_of_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simgrad.data import open_dataset
    from simgrad.runs.features import cached_features
    from tests.data.test_features import tiny

    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    split = open_dataset("scenes(train=40, val=5, test=5, size=32)").split("train")
    job = Job("cache", lambda f: cached_features(split, tiny(), device="cpu"), lambda f: None)
    assert set(both(job, tmp_path)) <= {0, DECLINED}
    assert cached_features(split, tiny(), device="cpu").shape == (6,)


def test_a_worker_takes_over_what_another_was_killed_at(tmp_path: Path) -> None:
    job = study_job()
    job.work(tmp_path / "study")
    study = Study.open(tmp_path / "study")
    first = study.jobs()[0][0]
    (first / "run.json").unlink()
    ready, told = os.pipe()

    def hold() -> None:
        from simgrad.core.files import lock

        with lock(first / ".lock"):
            os.write(told, b"x")
            import time

            time.sleep(0.8)
            os.kill(os.getpid(), 9)

    child = in_child(hold)
    os.read(ready, 1)
    assert work(study) == 0  # waits for the holder, then does it
    assert ended(child) == -9
    assert all((path / "run.json").exists() for path, _ in study.jobs())


def test_a_study_says_what_is_not_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from simgrad.cli.study import conclude
    from simgrad.studies.engine import failures

    job = study_job()
    job.work(tmp_path / "study")
    study = Study.open(tmp_path / "study")
    assert failures(study) == []
    run = Run(study.jobs()[1][0])
    write_info(run.path, {**run.info, "status": "running"})
    with pytest.raises(InputError, match="1 runs did not finish"):
        conclude(study)
    assert "nobody works on it" in capsys.readouterr().err
