"""A group of processes that wait for work: starting them takes seconds, so many tests share one."""

import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.processes import forking

PATIENCE = 120  # seconds that a piece of work may take


class Workers:
    """Processes of one torch.distributed group; started when first asked for something."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: list[Any] = []
        self._lines: list[Connection] = []
        # They meet at a file: a port may be taken, and each process has to know of it.
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, work: Callable[..., None], *given: Any) -> None:
        """Call it on every process. What fails on one of them fails here, with its traceback."""
        if not self._processes:
            self._start()
        for line in self._lines:
            line.send((work, given))
        waiting = list(self._lines)
        while waiting:
            ready = wait(waiting, PATIENCE)
            problem = None if ready else f"no answer for {PATIENCE} s"
            for line in ready:
                waiting.remove(line)  # type: ignore[arg-type]
                problem = problem or _answer(line)  # type: ignore[arg-type]
            if problem:
                self.stop()  # the others may wait for the one that failed
                raise AssertionError(problem)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        self._processes, self._lines = [], []
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        meeting = Path(self._folder.name) / "meeting"
        context = forking()
        for rank in range(self.count):
            here, there = context.Pipe()
            given = rank, self.count, meeting.as_uri(), there
            process = context.Process(target=_work, args=given, daemon=True)
            process.start()
            there.close()  # so that the end of the process is the end of the line
            self._processes.append(process)
            self._lines.append(here)


def _answer(line: Connection) -> str | None:
    try:
        problem: str | None = line.recv()
    except EOFError:
        return "a process died"
    return problem


def _work(rank: int, count: int, meeting: str, line: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=meeting,
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=PATIENCE),
    )
    while True:
        work, given = line.recv()
        try:
            work(*given)
            line.send(None)
        except BaseException:
            line.send(f"on process {rank}:\n{traceback.format_exc()}")
