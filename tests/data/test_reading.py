"""Pictures read by other processes: the same bytes and errors, and nobody waits for the dead."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.data import reading
from simgrad.data.base import Split
from simgrad.data.cutting import EVALUATION
from simgrad.data.pictures import FilePictures
from simgrad.data.reading import Died, Reader, readers
from simgrad.data.transforms import named
from simgrad.models.networks.backbones import backbone
from simgrad.runs import features
from simgrad.runs.features import compute, make_job

NAMES = ["a.jpg", "b.png", "turned.jpg", "grey.png", "two\nlines.jpg", "b\udce9b\udce9.jpg"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Pictures of all kinds, under names of all kinds."""
    chance = np.random.default_rng(0)
    made = []
    for name in NAMES:
        pixels = chance.integers(0, 255, (50, 70, 4 if name == "b.png" else 3), dtype=np.uint8)
        picture = Image.fromarray(pixels)
        exif = Image.Exif()
        if name == "turned.jpg":
            exif[0x0112] = 6
        with open(tmp_path / name, "wb") as file:
            (picture.convert("L") if name == "grey.png" else picture).save(
                file, "PNG" if name.endswith("png") else "JPEG", exif=exif
            )
        made.append(tmp_path / name)
    return made


def _split(files: list[Path]) -> Split:
    names = [str(file) for file in files]
    pictures = FilePictures(Path("/"), names)
    return Split("files", "train", ["a"] * len(names), np.arange(len(names)), names, pictures)


@pytest.mark.parametrize("style", list(EVALUATION))
def test_the_same_bytes(style: str, files: list[Path]) -> None:
    split, transform = _split(files), named(style, train=False, size=32)
    assert split.pictures is not None
    reader = Reader(style, 32, len(files))
    got = reader.read(files, 32, torch.clone)
    again = reader.read(files[1:3], 32, torch.clone)
    reader.close()
    expected = torch.stack([transform(split.pictures.picture(k), None) for k in range(len(files))])
    assert got.dtype == torch.uint8
    assert torch.equal(got, expected)
    assert torch.equal(again, expected[1:3])


def test_what_cannot_be_read_is_named_and_the_process_goes_on(files: list[Path]) -> None:
    bad = files[0].with_name("bad.jpg")
    bad.write_bytes(files[0].read_bytes()[:40])
    reader = Reader("plain", 16, 4)
    for broken, reason in ((bad, "cannot be decoded"), (bad.with_name("absent.jpg"), "no such")):
        with pytest.raises(InputError, match=reason) as told:
            reader.read([files[0], broken], 16, torch.clone)
        assert str(broken) in str(told.value)
    assert len(reader.read(files[:2], 16, torch.clone)) == 2
    reader.close()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a GPU with many cores."""
    monkeypatch.setattr(features, "_apart", lambda *_: True)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.usefixtures("apart")
def test_the_same_features(
    killed: bool, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = backbone("efficientnet-lite0", weights="random").eval()
    job, split = make_job(network, device="cpu", batch=2, workers=2), _split(files)
    read, asked = Reader.read, []

    def noted(reader: Reader, *given: object) -> torch.Tensor:
        asked.append(reader)
        if killed and len(asked) == 2:
            reader._child.kill()
            reader._child.wait()
        return read(reader, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "read", noted)
    compute(split, job, tmp_path / "apart.npy", report=lambda done: None)
    assert len(asked) >= 2
    assert all(reader._child.poll() is not None for reader in asked)
    monkeypatch.setattr(features, "_apart", lambda *_: False)
    count = len(asked)
    compute(split, job, tmp_path / "here.npy", report=lambda done: None)
    assert len(asked) == count
    one, other = ((tmp_path / name).read_bytes() for name in ("apart.npy", "here.npy"))
    assert one == other


@pytest.mark.usefixtures("apart")
def test_a_bad_picture_ends_it_and_leaves_no_process(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Reader] = []

    class Noted(Reader):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(reading, "Reader", Noted)
    files[3].write_bytes(b"no picture")
    network = backbone("efficientnet-lite0", weights="random").eval()
    job = make_job(network, device="cpu", batch=2, workers=2)
    with pytest.raises(InputError, match=r"grey\.png"):
        compute(_split(files), job, tmp_path / "x.npy", report=lambda done: None)
    assert len(made) == 2
    assert all(reader._child.poll() is not None for reader in made)


@pytest.mark.usefixtures("apart")
def test_threads_read_where_no_process_can_be_started(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Reader] = []

    class Scarce(Reader):
        def __init__(self, *given: Any) -> None:
            if made:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(reading, "Reader", Scarce)
    network = backbone("efficientnet-lite0", weights="random").eval()
    job = make_job(network, device="cpu", batch=2, workers=2)
    compute(_split(files), job, tmp_path / "x.npy", report=lambda done: None)
    assert len(np.load(tmp_path / "x.npy")) == len(files)
    assert [reader._child.poll() is not None for reader in made] == [True]


def test_who_died_is_said(files: list[Path]) -> None:
    with readers(2, "plain", 16, 2) as free:
        one, other = free.get(), free.get()
        one._child.send_signal(signal.SIGKILL)
        one._child.wait()
        with pytest.raises(Died):
            one.read(files[:1], 16, torch.clone)
        assert len(other.read(files[:1], 16, torch.clone)) == 1
    assert other._child.poll() is not None


def test_processes_end_with_whoever_started_them(files: list[Path]) -> None:
    script = (
        "import os, sys; from pathlib import Path; from simgrad.data.reading import Reader\n"
        "r = Reader('plain', 16, 2); r.read([Path(sys.argv[1])], 16, lambda x: x.clone())\n"
        "print(r._child.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    told = subprocess.run([sys.executable, "-c", script, files[0]], stdout=subprocess.PIPE)
    pid = int(told.stdout)
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.1)
    raise AssertionError("it is still there")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_only_where_it_helps(files: list[Path]) -> None:
    """On a GPU, with more cores than threads can use, of many pictures, in files."""
    network = backbone("efficientnet-lite0", weights="random").eval()
    split, cuda = _split(files), torch.device("cuda")

    def job(workers: int, device: torch.device = cuda) -> features.Job:
        return features.Job(network, "", device=device, workers=workers)

    assert features._apart(split, job(16), 1000)
    assert not features._apart(split, job(16, torch.device("cpu")), 1000)
    assert not features._apart(split, job(8), 1000)
    assert not features._apart(split, job(16), 100)


def test_a_reader_loads_pillow_alone(files: list[Path]) -> None:
    """What takes as long to load as hundreds of pictures to read is none of its business."""
    script = (
        "import io, json, os, sys; from simgrad.data import reading\n"
        "memory = os.memfd_create('pictures'); os.ftruncate(memory, 4 * 16 * 16 * 3)\n"
        "sys.stdin = io.StringIO(json.dumps({'files': sys.argv[1:], 'least': 16}))\n"
        "reading._main(f'/proc/self/fd/{memory}', 'plain', '16')\n"
        "print(*sorted({'PIL', 'numpy', 'torch'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", script, *map(str, files[:4])]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert told.stdout.splitlines() == ["{}", "PIL"]


def test_a_reader_that_cannot_be_started_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    def opened() -> list[str]:
        return [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()]

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(BlockingIOError):
        Reader("plain", 16, 2)
    gc.collect()
    assert not any("pictures" in name for name in opened())
