"""What macOS and Windows lack is taken away, and the same paths run. (Neither was run on here.)"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simgrad.core import derived, files, locks, threads
from simgrad.data.reading import Reader, readers


@pytest.mark.parametrize("how", ["missing", "refused"])
def test_an_array_takes_its_space_without_posix_fallocate(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "missing":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:

        def refuse(*_: object) -> None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

        monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    shape = (700, 513)  # more than a block that is written at a time
    array = files.new_array(tmp_path / "a.npy", shape, np.float32)
    told = (tmp_path / "a.npy").stat()
    assert told.st_blocks * 512 >= array.nbytes
    array[:] = np.arange(shape[1])
    array.flush()
    assert (np.load(tmp_path / "a.npy") == np.arange(shape[1])).all()


def test_files_are_whole_or_absent_the_way_of_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_WINDOWS", True)
    monkeypatch.setattr(locks, "_WINDOWS", True)
    (tmp_path / ".a.json.x1.tmp").touch()  # of a dead writer: no one has it open
    files.write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(KeyError), files.atomic_write(tmp_path / "a.json"):
        raise KeyError
    with files.lock(tmp_path / ".lock"):
        assert files.held(tmp_path / ".lock")
    assert files.read_json(tmp_path / "a.json") == {"a": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "a.json"]


def test_pictures_are_read_by_processes_without_memfd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "a.png"
    Image.new("RGB", (20, 20), (10, 200, 30)).save(picture)
    with readers(1, "plain", 16, 2) as free:
        usual = free.get().read([picture], 16, lambda pixels: pixels.clone())
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    reader = Reader("plain", 16, 2)
    try:
        assert (reader.read([picture], 16, lambda pixels: pixels.clone()) == usual).all()
    finally:
        reader.close()
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_data_features_and_locks_load_without_the_modules_of_unix() -> None:
    """`fcntl` and `resource` do not exist on Windows; only filelock may look for the first."""
    script = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "sys.modules.update(fcntl=None, resource=None, pwd=None, grp=None)\n"
        "import simgrad.core.files, simgrad.core.threads, simgrad.core.derived\n"
        "import simgrad.data.opening, simgrad.data.check\n"
        "import simgrad.data.batches, simgrad.data.reading\n"
        "from simgrad.data import open_dataset\n"
        "print(open_dataset('scenes(train=3, val=2, test=2)').split('train').captions[0] != '')"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.stdout == "True\n", told.stderr


# The demo with two small runs, then a search; nothing of what Unix, or Linux, alone has.
DEMO = """
import os, sys
import filelock  # it has a lock for each system, and chooses when it is imported
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty")))
for name in ("posix_fallocate", "memfd_create", "sched_getaffinity", "fork", "getuid", "mkfifo"):
    if hasattr(os, name):
        delattr(os, name)
from simgrad.cli import demo
from simgrad.cli.program import main
demo.DEMO["recipe"] |= {"data": "scenes(train=40, val=20, test=20, features=global)", "epochs": 1}
demo.DEMO["recipe"] |= {"model": "vse++(dimension=16, word_dimension=8)"}
kept = ("triplet-sh", "smooth-ap")
demo.DEMO["rows"] = [row for row in demo.DEMO["rows"] if row["label"] in kept]
for words in (
    ["demo", "--seeds", "1"],
    ["evaluate", "demo/runs/triplet-sh-s0", "demo/runs/smooth-ap-s0", "--output", "a.tex"],
    ["search", "demo/runs/triplet-sh-s0", "a red heart", "--top", "2"],
):
    try:
        main(words)
    except SystemExit as ended:
        assert not ended.code, words
"""


@pytest.mark.slow
def test_the_demo_without_what_other_systems_lack(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEMO], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "report.html" in done.stdout
    assert "best of 80 pictures" in done.stdout  # all splits
    assert (tmp_path / "a.tex").is_file()


def test_cores_without_affinity_and_with_a_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_GROUPS", tmp_path)
    assert threads.cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert threads.cores() == 12
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert threads.cores() == 3
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert threads.cores() == 12


def test_the_cache_is_where_one_says_or_where_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path))
    assert derived.cache_folder() == tmp_path
    monkeypatch.delenv("SIMGRAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert derived.cache_folder() == tmp_path / "xdg" / "simgrad"
