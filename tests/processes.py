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
LOADED = ["torch.distributed", "simgrad", "simgrad.training.sitting", "pytest"]
LOADED += [f"simgrad.cli.{name}" for name in COMMANDS]
LOADED += ["torch._dynamo", "pandas", "pyarrow.dataset"]  # by a first optimizer, and tables


class Told(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def simgrad(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 300
) -> Told:
    """`simgrad WORDS` in a process of its own: what it declares stays there."""
    return _told(_Command("simgrad.cli", words, cwd, env), seconds)


def script(*words: Path | str, cwd: Path | None = None, seconds: float = 300) -> Told:
    """`python FILE WORDS` in a process of its own."""
    file, *rest = map(str, words)
    return _told(_Command(file, tuple(rest), cwd), seconds)


def at_once(*commands: tuple[str, ...], seconds: float = 300) -> list[Told]:
    """Several `simgrad WORDS`, side by side."""
    begun = [_Command("simgrad.cli", words) for words in commands]
    return [_told(one, seconds) for one in begun]


class _Command:
    """`python -m MODULE WORDS` or `python FILE WORDS`, on its way."""

    def __init__(
        self, what: str, words: tuple[str, ...], cwd: Path | None = None,
        env: Mapping[str, str] | None = None, log: str | None = None,
    ) -> None:  # fmt: skip
        self.folder = tempfile.TemporaryDirectory()
        self.out, self.err = (log or f"{self.folder.name}/{name}" for name in ("out", "err"))
        given = str(cwd or Path.cwd()), dict(os.environ if env is None else env), what, words
        # Not a daemon: it may have processes of its own that read data.
        self.process = forking().Process(target=_run, args=(self.out, self.err, *given))
        self.process.start()


class ForkedPopen:
    """What a study's workers, and processes that time objectives, need of subprocess.Popen."""

    def __init__(self, command: list[str], env: Mapping[str, str], stdout: Any, **_: Any) -> None:
        _, *options, module, words = *command[:4], command[4:]
        assert options == ["-P", "-m"]
        log = getattr(stdout, "name", None)
        self._command = _Command(module, tuple(words), env=env, log=log)
        self._process = self._command.process

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._process.exitcode  # type: ignore[no-any-return]

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.join()


def forking() -> Any:
    """Like the module `multiprocessing`; processes are forked from one that has imported all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    return context


def _told(begun: _Command, seconds: float) -> Told:
    process = begun.process
    with begun.folder:
        process.join(seconds)
        late = process.exitcode is None
        if late:
            process.kill()
            process.join()
        out, err = (Path(path).read_text("utf-8") for path in (begun.out, begun.err))
        assert not late, f"still at work after {seconds} s\n{out}\n{err}"
        return Told(process.exitcode, out, err)


def _run(
    out: str, err: str, cwd: str, environment: dict[str, str], what: str, words: tuple[str, ...]
) -> None:
    """In the child: its output goes to files, as whatever it starts writes there too."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.dup2(os.pipe()[0], 0)  # a standard input that never ends: nobody is gone
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing put one there that ends at once
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = [what, *words]
    if what.endswith(".py"):
        sys.path.insert(0, str(Path(what).parent))
        runpy.run_path(what, run_name="__main__")
    else:
        runpy.run_module(what, run_name="__main__")


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
    crew = [
        forking().Process(target=work, args=(rank, *given), daemon=True) for rank in range(count)
    ]
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
