"""Locks: one holder at a time, told who it is; disks without locks; temporaries of the dead."""

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from simgrad.core import files
from simgrad.core.errors import Busy, DiskError, InputError, NoLocks

_HOLD = (
    "import sys; from simgrad.core.files import lock\n"
    "with lock(sys.argv[1]):\n    print('held', flush=True); sys.stdin.read()"
)


def _holder(path: Path) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_busy_names_the_file_what_it_is_and_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    child = _holder(path)
    try:
        assert files.held(path)
        with pytest.raises(Busy) as told, files.lock(path, wait=False, what="the run x"):
            pass
        for word in (str(path), "the run x", str(child.pid)):
            assert word in str(told.value)
        assert isinstance(told.value, InputError)
    finally:
        child.kill()
        child.communicate()
    assert not files.held(path)  # a killed holder holds nothing
    with files.lock(path, wait=False):
        assert files.held(path)


def test_who_waits_gets_it_when_it_is_free(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with files.lock(tmp_path / "a"):
            order.append("second")

    with files.lock(tmp_path / "a"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_looking_keeps_nobody_out(tmp_path: Path) -> None:
    path, stop = tmp_path / "a", threading.Event()
    path.touch()

    def look() -> None:
        while not stop.is_set():
            files.held(path)
            time.sleep(0.001)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(50):
            with files.lock(path, wait=False):
                pass
    finally:
        stop.set()
        thread.join()


def test_a_lock_file_that_its_holder_removed_keeps_nobody_in(tmp_path: Path) -> None:
    """Who waited for the old file and who makes a new one must not both be inside."""
    path, inside, most = tmp_path / "a", 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            with files.lock(path):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1
                path.unlink(missing_ok=True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(files, "lock_descriptor", refuse)


def test_a_disk_without_locks_is_named_with_a_cure(tmp_path: Path, without_locks: None) -> None:
    path = tmp_path / "run" / ".lock"
    with pytest.raises(NoLocks, match="does not support locks") as told, files.lock(path):
        pass
    assert str(path) in str(told.value)
    assert "another disk" in str(told.value)
    assert isinstance(told.value, DiskError)
    assert not files.held(path)


def test_a_disk_without_locks_still_gets_whole_files(tmp_path: Path, without_locks: None) -> None:
    files.write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(KeyError), files.atomic_write(tmp_path / "a.json"):
        raise KeyError
    assert files.read_json(tmp_path / "a.json") == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
