"""Pictures read by processes of their own: `python -m simgrad.data.reading`.

Threads that decode share Python's lock, and stop helping at about eight. A process here is started
with Pillow alone (torch and numpy would take longer than many a job), and not by a copy of one that
has threads and a GPU. It reads jobs from standard input, a line of JSON each, puts the pictures
into memory that both see, and answers with a line; it ends when its input does, which is also when
whoever asked has died.
"""

import json
import mmap
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from simgrad.core.children import python
from simgrad.core.errors import InputError
from simgrad.data.cutting import cut_of, open_picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

Readers = queue.SimpleQueue["Reader"]


class Died(Exception):
    """The process is gone, and what it was asked for is still to be done."""


class Reader:
    """A process that reads up to `most` pictures at a time, cut in a style, to bytes."""

    def __init__(self, style: str, size: int, most: int) -> None:
        import torch

        self._file: Path | None = None
        memory, name = self._memory()
        try:
            os.ftruncate(memory, most * size * size * 3)
            shared = mmap.mmap(memory, 0)
            self._pixels = torch.frombuffer(shared, dtype=torch.uint8).view(most, size, size, 3)
            self._child = subprocess.Popen(
                python("simgrad.data.reading", name, style, str(size)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=() if self._file else (memory,),
                start_new_session=True,  # Ctrl-C is for whoever asked
                text=True,
            )
        except BaseException:
            self._forget()
            raise
        finally:
            os.close(memory)  # both see it by now

    def _memory(self) -> tuple[int, str]:
        """Memory that two processes see, and how the other one calls it."""
        if hasattr(os, "memfd_create"):
            memory = os.memfd_create("pictures")
            return memory, f"/proc/self/fd/{memory}"
        # macOS, Windows: a file, which the system keeps in memory as well as it can.
        memory, name = tempfile.mkstemp(prefix="simgrad-pictures-")
        self._file = Path(name)
        return memory, name

    def _forget(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # Windows: still mapped; the system clears its folder
                self._file.unlink()

    def read(self, files: list[Path], least: int, copy: "Callable[[Tensor], Tensor]") -> "Tensor":
        """(files, 3, size, size) bytes, the three of a pixel side by side."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            job = {"files": [str(file) for file in files], "least": least}
            self._child.stdin.write(json.dumps(job) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except OSError as error:
            raise Died from error
        if not line:
            raise Died
        answer = json.loads(line)
        if "error" in answer:
            raise InputError(answer["error"])
        return copy(self._pixels[: len(files)]).permute(0, 3, 1, 2)

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.communicate()
        self._forget()


@contextmanager
def readers(count: int, style: str, size: int, most: int) -> "Iterator[Readers]":
    """So many of them, each for one thread at a time; all are back when it ends.

    Fewer where the machine allows no more processes or files: threads without one read themselves.
    """
    free: Readers = queue.SimpleQueue()
    made = []
    try:
        with suppress(OSError):
            for _ in range(count):
                made.append(Reader(style, size, most))
                free.put(made[-1])
        yield free
    finally:
        for reader in made:
            reader.close()


def read_by(
    free: Readers,
    files: "Sequence[Path | None]",
    least: int,
    copy: "Callable[[Tensor], Tensor]",
) -> "Tensor":
    """By the next one that is free; there is none for what is not in files."""
    if None in files:
        raise queue.Empty
    reader = free.get_nowait()
    pixels = reader.read([file for file in files if file is not None], least, copy)
    free.put(reader)  # unless it has died, or found a picture that ends it all
    return pixels


def _main(memory: str, style: str, side: str) -> None:
    with open(memory, "rb+") as file:
        shared = mmap.mmap(file.fileno(), 0)
    cut, size = cut_of(style), int(side)
    each = size * size * 3
    for line in sys.stdin:
        job, answer = json.loads(line), {}
        try:
            for row, file in enumerate(job["files"]):
                picture = open_picture(file, file, job["least"])
                shared[row * each : (row + 1) * each] = cut(picture, size).tobytes()
        except InputError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
