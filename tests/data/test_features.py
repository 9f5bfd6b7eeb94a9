"""`simgrad features`: what it writes, that it goes on where it was stopped, and the cache."""

import dataclasses
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import Split
from simgrad.models.networks.backbones import Backbone, backbone
from simgrad.models.networks.pixels import Standardise
from simgrad.runs.begun import finish
from simgrad.runs.features import Job, cached_features, compute, make_job


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))


class Tiny(torch.nn.Module):
    """A network that is quick: the colours of a 4 x 4 grid, mixed."""

    dimension = 6

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 8, 8, bias=False)
        torch.nn.init.normal_(self.conv.weight, generator=torch.Generator().manual_seed(seed))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv(x)
        return out

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).mean((2, 3))


def tiny(seed: int = 0) -> Backbone:
    half = (0.5, 0.5, 0.5)
    network = Backbone("tiny", Tiny(seed), size=32, transform="plain", mean_std=(half, half))
    assert isinstance(network.standardise, Standardise)
    return network.requires_grad_(False).eval()


@pytest.fixture
def split() -> Split:
    return open_dataset("scenes(train=23, val=0, test=0, size=32)").split("train")


def job(**options: Any) -> Job:
    options = {"batch": 4, "workers": 2, "device": "cpu"} | options
    return make_job(options.pop("network", None) or tiny(), **options)


def nothing(done: int) -> None:
    pass


class Stopped(Exception):
    pass


class StopsAt:
    """Pictures that fail from a row on, as a killed run does."""

    def __init__(self, pictures: Any, row: int) -> None:
        self.pictures, self.row = pictures, row

    def __len__(self) -> int:
        return len(self.pictures)

    root = None

    def path(self, row: int) -> Path | None:
        return None

    def content(self, verify: bool = False) -> str:
        return str(self.pictures.content(verify))

    def picture(self, row: int) -> Image.Image:
        if row >= self.row:
            raise Stopped
        picture: Image.Image = self.pictures.picture(row)
        return picture


def test_features_are_those_of_the_network(split: Split, tmp_path: Path) -> None:
    target = tmp_path / "train.npy"
    seen: list[int] = []
    assert compute(split, job(), target, report=seen.append) == 23
    array = np.load(target)
    assert array.shape == (23, 6)
    assert array.dtype == np.float32
    assert seen[0] == 0
    assert seen[-1] == 23
    assert split.pictures is not None
    picture = torch.from_numpy(np.array(split.pictures.picture(13))).permute(2, 0, 1)[None]
    assert np.allclose(array[13], tiny().pooled(picture)[0].numpy(), atol=1e-5)


def test_the_number_of_workers_changes_nothing(split: Split, tmp_path: Path) -> None:
    for workers in (1, 3):
        compute(split, job(workers=workers), tmp_path / f"{workers}.npy", report=nothing)
    assert (tmp_path / "1.npy").read_bytes() == (tmp_path / "3.npy").read_bytes()


@pytest.mark.parametrize("stop", [1, 9, 22])
def test_a_stopped_run_goes_on_and_writes_the_same_bytes(
    split: Split, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simgrad.runs.features._SAVE_EVERY", 0.0)
    whole, target = tmp_path / "whole.npy", tmp_path / "train.npy"
    compute(split, job(), whole, report=nothing)
    broken = dataclasses.replace(split, pictures=StopsAt(split.pictures, stop))
    with pytest.raises(Stopped):
        compute(broken, job(), target, report=nothing)
    assert not target.exists()
    done = stop // 4 * 4
    partial = tmp_path / ".train.npy.partial"
    if done:  # what a crash left beyond the marker is computed again
        torn = np.lib.format.open_memmap(partial, mode="r+")
        torn[done:] = 9
        torn.flush()
    assert compute(split, job(), target, report=nothing) == 23 - done
    assert target.read_bytes() == whole.read_bytes()
    assert not partial.exists()
    assert compute(split, job(), target, report=nothing) == 0  # whole: nothing to do
    finish(target)
    assert sorted(p.name for p in tmp_path.glob(".train*")) == []


@pytest.mark.parametrize(
    "other",
    [
        lambda: job(half=True),
        lambda: job(grid=2),
        lambda: job(batch=5),
        lambda: job(network=tiny(1)),
    ],
)
def test_a_run_with_other_settings_is_not_mixed_in(
    split: Split, tmp_path: Path, other: Callable[[], Job]
) -> None:
    target = tmp_path / "train.npy"
    compute(split, job(), target, report=nothing)
    with pytest.raises(InputError, match="begun with other settings"):
        compute(split, other(), target, report=nothing)
    finish(target)
    with pytest.raises(InputError, match="is there already"):
        compute(split, job(), target, report=nothing)


def test_wrong_options(split: Split, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="grid is 1 or more"):
        job(grid=0)
    with pytest.raises(InputError, match="'nowhere' is not"):
        job(device="nowhere")
    blind = dataclasses.replace(split, pictures=None)
    with pytest.raises(InputError, match="split 'train' has no pictures"):
        compute(blind, job(), tmp_path / "x.npy", report=nothing)


def test_grid_and_half(split: Split, tmp_path: Path) -> None:
    compute(split, job(grid=4), tmp_path / "grid.npy", report=nothing)
    compute(split, job(half=True), tmp_path / "half.npy", limit=5, report=nothing)
    compute(split, job(), tmp_path / "whole.npy", report=nothing)
    grid, half, whole = (np.load(tmp_path / f"{name}.npy") for name in ("grid", "half", "whole"))
    assert grid.shape == (23, 16, 6)
    assert half.shape == (5, 6)
    assert half.dtype == np.float16
    assert np.allclose(grid.mean(1), whole, atol=1e-4)
    assert np.allclose(half, whole[:5], atol=0.01)


def test_cached_features_are_computed_once_for_each_set_of_weights(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cached_features(split, tiny(), device="cpu")
    files = list((tmp_path / "cache" / "features").glob("*.npy"))
    assert len(files) == 1

    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("computed twice")

    with monkeypatch.context() as patch:
        patch.setattr("simgrad.runs.features.compute", fail)
        again = cached_features(split, tiny(), device="cpu")
    assert np.array_equal(first.rows(np.arange(23)), again.rows(np.arange(23)))
    assert first.header == again.header
    other = cached_features(split, tiny(1), device="cpu")
    assert other.header != first.header
    assert not np.array_equal(other.rows(np.arange(23)), first.rows(np.arange(23)))
    assert cached_features(split, tiny(), grid=2, device="cpu").shape == (4, 6)


def test_who_wants_features_that_another_is_computing_waits(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(job: Job, pixels: torch.Tensor) -> torch.Tensor:
        begun.set()
        assert go_on.wait(30)
        seen.append(len(pixels))
        return job.backbone.pooled(pixels)

    monkeypatch.setattr("simgrad.runs.features._forward", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cached_features, split, tiny(), device="cpu", workers=1)
        assert begun.wait(30)
        second = pool.submit(cached_features, split, tiny(), device="cpu", workers=1)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.3)
        go_on.set()
        rows = np.arange(23)
        assert np.array_equal(first.result(30).rows(rows), second.result(30).rows(rows))
    assert sum(seen) == 23


def test_threads_to_come_compute_with_as_many_as_before(split: Split) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cached_features(split, tiny(), device="cpu", workers=1)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["features", *arguments])
    return int(end.value.code or 0)


def test_the_command_writes_a_data_set_that_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = "scenes(train=6, val=3, test=3)"
    folder = tmp_path / "out"
    options = ["--backbone", "random:efficientnet-lite0", "--output", str(folder)]
    assert run(spec, *options, "--grid", "7", "--half", "True", "--device", "cpu") == 0
    assert "images/s" in capsys.readouterr().out
    header = json.loads((folder / "features.json").read_text())
    assert header["layout"] == "simgrad-features"
    assert header["backbone"] == "efficientnet-lite0"
    assert header["grid"] == 7
    assert header["splits"]["val"]["images"] == [f"scene-0-{10**9 + i}" for i in range(3)]
    dataset = open_dataset(spec, features=folder)
    features = dataset.split("train").features
    assert features is not None
    assert features.shape == (49, 1280)
    assert len(features) == 6
    assert sorted(p.name for p in folder.iterdir()) == [
        "features.json",
        "test.npy",
        "train.npy",
        "val.npy",
    ]
    assert run(spec, *options) == 2
    assert "other settings" in capsys.readouterr().err


def test_the_command_can_keep_the_whole_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = "scenes(train=2, val=1, test=1)"
    options = ["--backbone", "random:efficientnet-lite0", "--device", "cpu"]
    for name, chosen in (("crop", []), ("whole", ["--transform", "plain", "--size", "96"])):
        assert run(spec, *options, *chosen, "--output", str(tmp_path / name)) == 0
    header = json.loads((tmp_path / "whole" / "features.json").read_text())
    assert (header["transform"], header["size"]) == ("plain", 96)
    crop, whole = (np.load(tmp_path / name / "train.npy") for name in ("crop", "whole"))
    assert crop.shape == whole.shape
    assert not np.allclose(crop, whole)
    capsys.readouterr()
    assert run(spec, *options, "--transform", "oval", "--output", str(tmp_path / "x")) == 2
    assert "there is no transform 'oval'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_try_with_a_limit_says_that_it_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, folder = "scenes(train=4, val=2, test=2)", tmp_path / "out"
    options = ["--backbone", "random:efficientnet-lite0", "--device", "cpu"]
    assert run(spec, *options, "--output", str(folder), "--limit", "2") == 0
    assert "training needs the features of all images" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"for 2 of 4 images.*`limit`"):
        open_dataset(spec, features=folder)


def test_the_command_names_a_broken_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    Image.new("RGB", (9, 9)).save(data / "good.jpg")
    (data / "bad.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (data / "captions.csv").write_text("image,caption\ngood.jpg,a square\nbad.jpg,a ball\n")
    code = run(
        str(data), "--backbone", "random:efficientnet-lite0", "--output", str(tmp_path / "out")
    )
    assert code == 2
    assert "bad.jpg" in capsys.readouterr().err


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_gives_the_same_features(split: Split, tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        work = make_job(backbone("random:efficientnet-lite0"), device=device, batch=8)
        compute(split, work, tmp_path / f"{device}.npy", report=nothing)
    cpu, cuda = (np.load(tmp_path / f"{device}.npy") for device in ("cpu", "cuda"))
    # Convolutions on a GPU use numbers of fewer digits.
    assert np.abs(cpu - cuda).max() < 0.02 * np.abs(cpu).max()
