"""Processes for a test: a command, a script, or several joined by gloo.

They are forked from one that has imported all, so none waits for torch.
"""

import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

COMMANDS = ("program", "train", "report", "evaluate", "features", "search", "datasets", "cocos")
LOADED = ["torch.distributed", "simgrad", "simgrad.training.loop", "pytest"]
LOADED += [f"simgrad.cli.{name}" for name in COMMANDS]


class Told(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def simgrad(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 300
) -> Told:
    """`simgrad WORDS` in a process of its own: what it declares stays there."""
    return _ended(_begun(None, words, cwd, env), seconds)


def script(*words: Path | str, cwd: Path | None = None, seconds: float = 300) -> Told:
    """`python FILE WORDS` in a process of its own."""
    file, *rest = map(str, words)
    return _ended(_begun(file, tuple(rest), cwd, None), seconds)


def at_once(*commands: tuple[str, ...], seconds: float = 300) -> list[Told]:
    """Several `simgrad WORDS`, side by side."""
    begun = [_begun(None, words, None, None) for words in commands]
    return [_ended(one, seconds) for one in begun]


def _begun(
    file: str | None, words: tuple[str, ...], cwd: Path | None, env: Mapping[str, str] | None
) -> tuple[Any, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory()
    given = folder.name, str(cwd or Path.cwd()), dict(os.environ if env is None else env)
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    # Not a daemon: it may have processes of its own that read data.
    one = context.Process(target=_command, args=(*given, file, words))
    one.start()
    return one, folder


def _ended(begun: tuple[Any, tempfile.TemporaryDirectory[str]], seconds: float) -> Told:
    one, folder = begun
    with folder as place:
        one.join(seconds)
        late = one.exitcode is None
        if late:
            one.kill()
            one.join()
        out, err = ((Path(place) / name).read_text("utf-8") for name in ("out", "err"))
        assert not late, f"still at work after {seconds} s\n{out}\n{err}"
        return Told(one.exitcode, out, err)


def _command(
    folder: str, cwd: str, environment: dict[str, str], file: str | None, words: tuple[str, ...]
) -> None:
    """In the child: its output goes to files, as whatever it starts writes there too."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = [file or "simgrad", *words]
    if file is None:
        runpy.run_module("simgrad.cli", run_name="__main__", alter_sys=False)
    else:
        sys.path.insert(0, str(Path(file).parent))
        runpy.run_path(file, run_name="__main__")


def together(work: Callable[..., None], world: int, *given: Any, seconds: float = 120) -> None:
    """`work(rank, world, *given)` in so many processes; an error in one of them is one here."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        crew = started(_process, world, work, world, store, given)
        end = time.monotonic() + seconds
        try:
            while any(one.exitcode is None for one in crew):
                failed = [one.exitcode for one in crew if one.exitcode]
                assert not failed, f"a process failed: {failed}"
                assert time.monotonic() < end, f"{work.__name__}: still at work"
                time.sleep(0.02)
            assert not any(one.exitcode for one in crew), [one.exitcode for one in crew]
        finally:
            for one in crew:
                one.kill()
                one.join()


def started(work: Callable[..., None], count: int, *given: Any) -> list[Any]:
    """Processes that do `work(rank, *given)`, on their way."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    crew = [context.Process(target=work, args=(rank, *given), daemon=True) for rank in range(count)]
    for one in crew:
        one.start()
    return crew


def free_port() -> int:
    """That nobody listens at just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _process(
    rank: int, work: Callable[..., None], world: int, store: str, given: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    try:
        work(rank, world, *given)
    finally:
        dist.destroy_process_group()
