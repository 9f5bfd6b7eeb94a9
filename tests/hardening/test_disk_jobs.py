"""Full and read-only disks under everything that writes, and under the cache."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.cli.program import main
from simgrad.core.errors import DiskError
from simgrad.data import open_dataset
from simgrad.runs.features import cached_features
from simgrad.training import train
from tests.data.test_features import tiny
from tests.hardening.disks import disk
from tests.hardening.jobs import (
    Job,
    dataset,
    other_jobs,
    outcome_of_run,
    recipe,
    run_job,
    study_job,
)
from tests.hardening.kills import ended, in_child, leftovers

NAMES = ["study", "features", "mining", "report"]
WORLD = "scenes(train=30, val=5, test=5, seed=9, features=regions)"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_job().work(folder)
    return folder


def job_called(name: str, finished: Path) -> Job:
    jobs = [study_job(), *other_jobs(finished)]
    return next(job for job in jobs if job.name == name)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_room_is_made_bit_by_bit(name: str, finished: Path, tmp_path: Path) -> None:
    job = job_called(name, finished)
    job.work(tmp_path / "whole")
    with disk(tmp_path / "disk", "size=4k") as small:
        refused = []
        for size in range(8, 8000, 40):
            small.set(f"size={size}k")
            try:
                job.work(small.path / "out")
                break
            except DiskError as error:
                refused.append(str(error))
            except AssertionError:  # a study counts its failed runs, and each has its reason
                refused.append("no space left")
            assert not leftovers(small.path)
        assert refused
        assert all("no space left" in told for told in refused)
        assert job.outcome(small.path / "out") == job.outcome(tmp_path / "whole")


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_is_read_only_for_a_while(name: str, finished: Path, tmp_path: Path) -> None:
    job = job_called(name, finished)
    job.work(tmp_path / "whole")
    with disk(tmp_path / "disk") as one:
        one.set("ro")
        with pytest.raises(DiskError, match="read-only"):
            job.work(one.path / "out")
        one.set("rw")
        job.work(one.path / "out")
        assert job.outcome(one.path / "out") == job.outcome(tmp_path / "whole")


def test_a_run_on_a_disk_that_becomes_read_only(tmp_path: Path) -> None:
    whole = outcome_of_run(train(recipe(), tmp_path / "whole", dataset=dataset(), quiet=True).path)
    with disk(tmp_path / "disk") as one:
        begun = train(recipe(), one.path / "run", dataset=dataset(), quiet=True, stop_after=0.0)
        assert begun.info["status"] == "stopped"
        one.set("ro")
        with pytest.raises(DiskError, match="read-only"):
            train(recipe(), one.path / "run", dataset=dataset(), quiet=True)
        one.set("rw")
        train(recipe(), one.path / "run", dataset=dataset(), quiet=True)
        assert outcome_of_run(one.path / "run") == whole


def test_a_command_on_a_read_only_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--data", recipe().data, "--epochs", "1", "--output"]
    with disk(tmp_path / "disk", "ro") as one, pytest.raises(SystemExit) as left:
        main([*words, str(one.path / "run")])
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "read-only" in told
    assert "Traceback" not in told


def rows_of(world: str) -> Any:
    features = open_dataset(world).split("train").features
    assert features is not None
    return np.asarray(features.rows(np.arange(30)))


@pytest.mark.parametrize("options", ["size=16k", "ro"])
def test_no_space_in_the_cache(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows_of(WORLD)
    with disk(tmp_path / "cache", options) as one:
        monkeypatch.setenv("SIMGRAD_CACHE", str(one.path))

        def read() -> None:
            assert np.array_equal(rows_of(WORLD), expected)
            assert not leftovers(one.path)

        assert ended(in_child(read)) == 0  # in a child: a signal would end this process


def test_no_space_for_the_features_of_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = open_dataset("scenes(train=1000, val=5, test=5, size=32)").split("train")
    with disk(tmp_path / "cache", "size=16k") as one:
        monkeypatch.setenv("SIMGRAD_CACHE", str(one.path))
        with pytest.raises(DiskError, match="no space left"):
            cached_features(split, tiny(), device="cpu")
        one.set("size=64m")
        assert cached_features(split, tiny(), device="cpu").shape == (6,)


def test_no_space_for_a_search_index(finished: Path, tmp_path: Path) -> None:
    from simgrad.retriever.opening import open_folder
    from simgrad.retriever.search import Searcher

    def found(run: Path) -> list[int]:
        searcher = Searcher(open_folder(run), dataset=dataset())
        return [hit.row for hit in searcher.sentence("a red circle", 5).images]

    with disk(tmp_path / "disk") as one:
        shutil.copytree(finished, one.path / "run", ignore=shutil.ignore_patterns("search"))
        one.set("ro")
        assert found(one.path / "run") == found(finished)
