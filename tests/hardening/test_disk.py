"""No space, no permission, no memory: a plain word, nothing torn, and the same command goes on."""

import errno
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.cli.program import main
from simgrad.core import files
from simgrad.core.errors import DiskError, InputError
from simgrad.training import Run, train
from simgrad.training.loop import Step
from simgrad.training.state import load_state
from tests.hardening.disks import disk
from tests.hardening.jobs import dataset, outcome_of_run, recipe
from tests.hardening.kills import ended, in_child, leftovers


def go(folder: Path, **changes: Any) -> Run:
    return train(recipe(**changes), folder, dataset=dataset(), quiet=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome_of_run(go(tmp_path_factory.mktemp("whole") / "run").path)


def test_a_disk_that_is_full(whole: dict[str, Any], tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "size=16k") as small:
        refused = []
        for size in range(16, 4000, 24):  # room is made bit by bit
            small.set(f"size={size}k")
            try:
                go(small.path / "run")
                break
            except DiskError as error:
                refused.append(str(error))
            assert not leftovers(small.path)
        assert len(refused) > 3
        assert all("no space left" in told for told in refused)
        assert outcome_of_run(small.path / "run") == whole


@pytest.mark.parametrize("limit", [100, 3_000, 20_000, 40_000])
def test_files_that_may_not_grow(limit: int, whole: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(DiskError, match="cannot be written: the file would be larger"):
            go(folder)

    assert ended(in_child(limited)) == 0
    assert not leftovers(tmp_path)
    go(folder)
    assert outcome_of_run(folder) == whole


def test_features_ask_for_their_space_at_once(tmp_path: Path) -> None:
    from simgrad.data import open_dataset
    from simgrad.runs.features import compute, make_job
    from tests.data.test_features import tiny

    split = open_dataset("scenes(train=60, val=20, test=20, size=32)").split("train")
    job = make_job(tiny(), batch=4, device="cpu", workers=1)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        with pytest.raises(DiskError, match=r"train.npy.*larger"):
            compute(split, job, tmp_path / "train.npy", report=lambda done: None)

    assert ended(in_child(limited)) == 0
    assert compute(split, job, tmp_path / "train.npy", report=lambda done: None) == 60
    assert np.load(tmp_path / "train.npy").shape == (60, 6)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("where", ["mkstemp", "fsync", "replace", "open"])
def test_whatever_fails_the_old_file_stays(
    number: int, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    files.write_json(path, {"old": True})

    def fail(*arguments: object, **named: object) -> None:
        raise OSError(number, os.strerror(number))

    owner: Any = files.tempfile if where == "mkstemp" else os
    if where == "open":  # the file itself, after its temporary name was taken
        monkeypatch.setattr(files, "open", fail, raising=False)
    else:
        monkeypatch.setattr(owner, where, fail)
    with pytest.raises(DiskError, match=r"run\.json: cannot be written"):
        files.write_json(path, {"new": True})
    monkeypatch.undo()
    assert files.read_json(path) == {"old": True}
    assert not leftovers(tmp_path)


def test_errors_of_the_program_are_not_blamed_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(KeyError), files.atomic_write(tmp_path / "a"):
        raise KeyError("a")
    with pytest.raises(FileNotFoundError), files.atomic_write(tmp_path / "a"):
        (tmp_path / "missing").read_text()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_the_dead_are_swept_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    dead = [tmp_path / ".a.json.x1.tmp", tmp_path / ".b.json.x2.tmp"]
    for path in dead:
        path.touch()
    with files.atomic_path(tmp_path / "a.json") as living:
        assert not dead[0].exists()  # of the same file
        assert dead[1].exists()
        files.sweep(tmp_path)
        assert living.exists()
        assert not dead[1].exists()
        living.write_text("1")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("command", ["train", "report", "evaluate"])
def test_a_folder_that_is_a_file(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    target = str(tmp_path / "file" / "below")
    run = str(go(tmp_path / "run").path)
    words = {
        "train": ["train", "--data", recipe().data, "--output", target],
        "report": ["report", run, "--output", target, "--batches", "0", "--pictures", "False"],
        "evaluate": ["evaluate", run, "--output", target],
    }[command]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "file" in told
    assert "Traceback" not in told


def test_no_cache_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simgrad.data import open_dataset

    (tmp_path / "file").touch()
    expected = open_dataset("scenes(train=30, val=5, test=5, seed=9, features=regions)")
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "file" / "cache"))
    found = open_dataset("scenes(train=30, val=5, test=5, seed=9, features=regions)")
    for each in (found, expected):
        assert each.split("train").features is not None
    rows = [np.asarray(d.split("train").features.rows(np.arange(30))) for d in (found, expected)]  # type: ignore[union-attr]
    assert np.array_equal(*rows)


def test_out_of_memory_names_the_setting_and_goes_on_with_it(
    whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, steps = Step.update, iter(range(1, 1000))

    def update(self: Step, batch: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        if self.recipe.micro_batch is None and next(steps) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return original(self, batch, *arguments, **named)

    monkeypatch.setattr(Step, "update", update)
    with pytest.raises(InputError, match=r"after step 5, with batch 32.*`micro_batch=16`"):
        go(tmp_path / "run")
    assert go(tmp_path / "run", micro_batch=16).finished
    found = outcome_of_run(tmp_path / "run")
    assert found["steps"] == whole["steps"]
    assert found["test"]["rsum"] == pytest.approx(whole["test"]["rsum"], abs=5)


@pytest.mark.parametrize(
    ("told", "before"),
    [
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None),
        ("CUDA error: out of memory", None),
        ("operation failed due to a previous error during capture", torch.OutOfMemoryError()),
    ],
)
def test_lack_of_memory_has_many_names(
    told: str, before: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def update(self: Step, *arguments: Any, **named: Any) -> None:
        error = RuntimeError(told)
        error.__context__ = before
        raise error

    monkeypatch.setattr(Step, "update", update)
    with pytest.raises(InputError, match="out of memory after step 0"):
        go(tmp_path / "run")


def test_another_mistake_is_not_called_a_lack_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def update(self: Step, *arguments: Any, **named: Any) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Step, "update", update)
    with pytest.raises(RuntimeError, match="shapes"):
        go(tmp_path / "run")


def test_no_checkpoint_holds_a_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, steps = Step.update, iter(range(1, 1000))

    def update(self: Step, *arguments: Any, **named: Any) -> torch.Tensor:
        value = original(self, *arguments, **named)
        if next(steps) == 4:  # the step of an evaluation; the loss itself is still a number
            with torch.no_grad():
                next(self.model.parameters()).view(-1)[3] = float("nan")
        return value

    monkeypatch.setattr(Step, "update", update)
    with pytest.raises(InputError, match=r"step 4 .*weight .* contains NaN"):
        go(tmp_path / "run")
    assert Run(tmp_path / "run").info["status"] == "failed"
    found = load_state(tmp_path / "run" / "last")
    assert found is not None
    assert all(torch.isfinite(t).all() for t in found[0].values() if t.is_floating_point())
    assert found[1]["step"] == 3
    assert not (tmp_path / "run" / "best").exists()


def test_data_that_changed_between_sittings_are_noticed(tmp_path: Path) -> None:
    run = train(recipe(), tmp_path / "run", dataset=dataset(), quiet=True, stop_after=0.0)
    assert run.info["status"] == "stopped"
    files.write_json(run.path / "run.json", {**run.info, "data_fingerprint": "another"})
    with pytest.raises(InputError, match="made with other data"):
        go(tmp_path / "run")


def test_a_run_that_could_not_begin_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--data", str(tmp_path / "nothing"), "--output", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert list(tmp_path.iterdir()) == []
    assert "nothing" in capsys.readouterr().err
