"""Same seed, same recipe, same machine: the same bytes, however many workers there are."""

from pathlib import Path

import pytest

from simgrad.data import open_dataset
from simgrad.training import train
from tests.hardening.jobs import dataset, outcome_of_run, recipe, study_job
from tests.hardening.kills import ended, in_child


def test_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train(recipe(), tmp_path / name, dataset=dataset(), quiet=True)
    assert outcome_of_run(tmp_path / "a") == outcome_of_run(tmp_path / "b")


def test_in_another_process_that_reads_the_data_itself(tmp_path: Path) -> None:
    train(recipe(), tmp_path / "a", dataset=dataset(), quiet=True)
    child = in_child(lambda: train(recipe(), tmp_path / "b", quiet=True))
    assert ended(child) == 0
    assert outcome_of_run(tmp_path / "a") == outcome_of_run(tmp_path / "b")


@pytest.mark.parametrize("workers", [1, 3])
def test_however_many_read_ahead(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgrad.retriever import encoding

    monkeypatch.setattr(encoding, "_RESIDENT", {})  # read from disk, as large features are
    data = open_dataset("scenes(train=40, val=10, test=10, features=regions)")
    same = {"data": data.name, "model": "scan(dimension=8, word_dimension=8)", "epochs": 1}
    for name, count in (("a", 0), ("b", workers)):
        train(recipe(**same, workers=count), tmp_path / name, dataset=data, quiet=True)
    assert outcome_of_run(tmp_path / "a") == outcome_of_run(tmp_path / "b")


@pytest.mark.long
def test_however_many_work_on_a_study(tmp_path: Path) -> None:
    job = study_job()
    job.work(tmp_path / "one")
    children = [in_child(lambda: job.work(tmp_path / "three")) for _ in range(3)]
    assert [ended(child) for child in children] == [0, 0, 0]
    assert job.outcome(tmp_path / "one") == job.outcome(tmp_path / "three")
