"""What nobody had tried: jumps of the clock, links in circles, folders of 100,000 files, folders
that are somebody else's, data replaced by data of the same size and time, code named by a model's
own configuration, two exports at once.
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from PIL import Image

from simgrad.cli.program import main
from simgrad.core.derived import content_hash
from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data import open_dataset
from simgrad.models import load
from simgrad.retriever.folder import find_pictures
from simgrad.retriever.opening import open_folder
from simgrad.runs.run import Run
from tests.hardening.jobs import DATA, clock_job, jumping, outcome_of_run, run_job, study_job
from tests.hardening.kills import arm, ended, in_child, leftovers
from tests.hardening.test_together import DECLINED, politely
from tests.models import tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_job().work(folder)
    return folder


def exit_code(*words: str) -> Any:
    with pytest.raises(SystemExit) as told:
        main(list(words))
    return told.value.code


# --- the clock


def test_a_clock_that_jumps(finished: Path, tmp_path: Path) -> None:
    study = study_job()
    study.work(tmp_path / "expected")
    clock_job().work(tmp_path / "run")
    with mock.patch("time.time", jumping()):
        study.work(tmp_path / "study")
    assert outcome_of_run(tmp_path / "run") == outcome_of_run(finished)
    assert study.outcome(tmp_path / "study") == study.outcome(tmp_path / "expected")


@pytest.mark.parametrize("stamp", [0.0, 4e9])  # 1970, 2096
def test_a_stopped_run_whose_files_are_of_another_time(
    stamp: float, finished: Path, tmp_path: Path
) -> None:
    job = run_job()
    assert ended(in_child(lambda: job.work(tmp_path / "run"), lambda: arm(("after", 6)))) < 0
    for path in (tmp_path / "run").rglob("*"):
        os.utime(path, (stamp, stamp))
    job.work(tmp_path / "run")
    assert outcome_of_run(tmp_path / "run") == outcome_of_run(finished)


def test_a_file_of_the_same_size_and_time_is_another(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    hashes = []
    for letter in (b"a", b"b"):
        file.write_bytes(letter * 5000)
        os.utime(file, (1e9, 1e9))
        hashes.append(content_hash(file))
        assert content_hash(file) == hashes[-1]
    assert hashes[0] != hashes[1]


# --- links in circles


def circles(folder: Path) -> Path:
    """A folder of one picture, and of links that lead to themselves, to each other and back."""
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    (folder / "a.txt").write_text("a dog\n")
    for name, to in (("self.png", "self.png"), ("x.png", "y.png"), ("y.png", "x.png")):
        (folder / name).symlink_to(to)
    (folder / "here").symlink_to(".")
    return folder


def test_links_in_circles_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = circles(tmp_path / "pictures")
    assert list(find_pictures(folder)) == ["a.png"]
    with pytest.raises(InputError, match=r"self\.png"):
        open_dataset(folder)
    assert exit_code("datasets", str(folder)) == 0
    assert "problems    3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [("datasets", "LINK"), ("train", "LINK"), ("evaluate", "LINK"), ("study", "LINK"),
     ("search", "LINK", "a dog"), ("import", "LINK", "--to", "out"), ("report", "LINK"),
     ("train", "--data", DATA, "--output", "LINK")],
    ids=" ".join,
)  # fmt: skip
def test_a_link_to_itself_is_told(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "LINK").symlink_to("LINK")
    assert exit_code(*words) == 2
    assert "LINK" in capsys.readouterr().err


# --- many files


@pytest.mark.slow
def test_a_hundred_thousand_files(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "one.png")
    (tmp_path / "one.txt").write_text("a small dog\n")
    for number in range(50_000):
        for end in ("png", "txt"):
            os.link(tmp_path / f"one.{end}", folder / f"{number}.{end}")
    started = time.monotonic()
    assert sum(split.num_images for split in open_dataset(folder).splits.values()) == 50_000
    assert len(find_pictures(folder)) == 50_000
    shutil.copytree(finished, folder / "run")
    assert exit_code("evaluate", str(folder / "run")) == 0
    assert time.monotonic() - started < 300


# --- folders that are somebody else's


def as_nobody() -> None:
    """In a child: what root may, others may not."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def test_a_folder_that_only_its_owner_may_write(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(finished, folder / "run")
    before = {p: sha256(p) for p in folder.rglob("*") if p.is_file()}
    words = {
        ("evaluate", str(folder / "run")): 0,
        ("report", str(folder / "run"), "--output", str(folder / "page.html")): 2,
        ("train", "--data", DATA, "--epochs", "1", "--output", str(folder / "new")): 2,
        ("mine", str(folder / "run")): 2,
        ("export", str(folder / "run"), "--to", str(folder / "model")): 2,
    }
    # First where all may write: what is imported late lies where nobody may look, on some machines.
    shutil.copytree(finished, tmp_path / "run")
    assert exit_code("evaluate", str(tmp_path / "run")) == 0
    assert exit_code("report", str(tmp_path / "run"), "--output", str(tmp_path / "p.html")) == 0
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    try:
        for command, code in words.items():
            child = in_child(lambda w=command: os._exit(exit_code(*w)), as_nobody)  # type: ignore[misc]
            assert ended(child) == code, command
        found = {p: sha256(p) for p in folder.rglob("*") if p.is_file()}
        assert found == before
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


# --- data replaced, code named by a file


def test_pictures_replaced_by_others_of_the_same_size_and_time(tmp_path: Path) -> None:
    """What a run records of its data, and `evaluate` compares (tests/runs/test_data.py)."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(24):
        Image.new("L", (8, 8), 10 * number).save(data / f"{number}.bmp")
        (data / f"{number}.txt").write_text(f"grey number {number}\n")
        os.utime(data / f"{number}.bmp", (1e9, 1e9))
    before = open_dataset(data).fingerprint()
    changed = data / "7.bmp"
    told = changed.stat()
    content = bytearray(changed.read_bytes())
    content[-1] ^= 0xFF
    changed.write_bytes(bytes(content))
    os.utime(changed, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert open_dataset(data).fingerprint() != before


def test_code_that_a_models_configuration_names_does_not_run(tmp_path: Path) -> None:
    """`auto_map`: classes in a Python file beside the weights."""
    folder, ran = tiny.clip_folder(tmp_path / "clip"), tmp_path / "ran"
    (folder / "evil.py").write_text(
        f"open({str(ran)!r}, 'w').close()\n"
        "from transformers import CLIPConfig as C, CLIPModel as M, CLIPTokenizer as T\n"
        "from transformers import CLIPImageProcessor as P\n"
    )
    kinds = {"Config": "C", "Model": "M", "ImageProcessor": "P", "Processor": "P"}
    named: dict[str, Any] = {f"Auto{kind}": f"evil.{name}" for kind, name in kinds.items()}
    named["AutoTokenizer"] = ["evil.T", "evil.T"]
    for file in folder.glob("*config.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": named}))
    from simgrad.models.networks.dual import _pretrained

    _pretrained(str(folder))
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | {"model_type": "evil"}))
    with pytest.raises(InputError, match="evil"):
        _pretrained(str(folder))
    assert not ran.exists()


# --- two at once


def test_two_exports_at_once(finished: Path, tmp_path: Path) -> None:
    """One declines; the folder is whole, and nothing is left beside it."""

    out, gone = tmp_path / "out" / "model", tmp_path / "gone"
    out.parent.mkdir()
    gone.mkdir()

    def slow(model: Any, format: str, folder: Path, *_: object, **__: object) -> None:
        (folder / "first").write_text("x")
        until = time.monotonic() + 60
        while len(os.listdir(gone)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        (folder / "second").write_text("x")

    def exported() -> None:
        try:
            open_folder(finished).export(out)
        finally:
            (gone / str(os.getpid())).touch()

    with mock.patch("simgrad.models.base.RetrievalModel.export", slow):
        children = [in_child(politely(exported)) for _ in range(3)]
        codes = sorted(ended(child) for child in children)
        assert codes == [0, DECLINED, DECLINED]
        assert sorted(p.name for p in out.iterdir()) == ["first", "second"]
        assert os.listdir(out.parent) == ["model"]
        with pytest.raises(InputError, match="not empty"):
            open_folder(finished).export(out)
        assert os.listdir(out.parent) == ["model"]


def test_it_is_evaluated_while_it_is_trained(finished: Path, tmp_path: Path) -> None:
    """A reader beside a writer sees a whole run, or is told that it is not finished."""
    job, folder = run_job(), tmp_path / "run"
    child = in_child(lambda: job.work(folder))
    seen = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        try:
            load(folder / "best")
            seen += 1
        except InputError:
            pass
        if (folder / "recipe.yaml").is_file():
            assert not Run.open(folder).finished or (folder / "ranks.parquet").is_file()
    assert outcome_of_run(folder) == outcome_of_run(finished)
    assert not leftovers(folder)
