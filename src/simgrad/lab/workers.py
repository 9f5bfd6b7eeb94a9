"""Where work is done that must not hold up the server: decoding in processes, models in threads.

Both have a limit on what waits. A decoder that is killed, crashes or takes too long costs its own
picture at most: it is replaced, and a job whose process was killed from outside is tried again.
"""

import json
import os
import queue
import select
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from simgrad.core.children import python
from simgrad.core.errors import InputError
from simgrad.lab.decoder import HEAD, message

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")


class Overloaded(Exception):
    """More is waiting than the server takes on: 503, come back later."""


class BadPicture(InputError):
    """A picture that cannot be decoded, with the reason: 422."""


class _Died(Exception):
    """The process is gone."""


@dataclass(frozen=True)
class UploadLimits:
    """What an upload may be."""

    bytes: int = 10 << 20
    pixels: int = 40_000_000
    seconds: float = 10.0  # to decode
    body_seconds: float = 30.0  # to arrive
    side: int = 1600  # larger pictures are shrunk before a model sees them


class _Process:
    """One decoder."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            python("simgrad.lab.decoder"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

        os.set_blocking(cast(IO[bytes], self.child.stdin).fileno(), False)

    def ask(self, settings: dict[str, Any], data: bytes, seconds: float) -> tuple[Any, bytes]:
        deadline = monotonic() + seconds
        try:
            self._write(message(settings, data), deadline)
            length, size = HEAD.unpack(self._read(HEAD.size, deadline))
            answer = json.loads(self._read(length, deadline))
            return answer, self._read(size, deadline)
        except (OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise _Died from None

    def _write(self, data: bytes, deadline: float) -> None:
        handle = cast(IO[bytes], self.child.stdin).fileno()
        rest = memoryview(data)
        while rest:
            _, ready, _ = select.select([], [handle], [], max(0.0, deadline - monotonic()))
            if not ready:
                raise TimeoutError
            rest = rest[os.write(handle, rest[: 1 << 16]) :]

    def _read(self, count: int, deadline: float) -> bytes:
        parts = []
        handle = cast(IO[bytes], self.child.stdout).fileno()
        while count:
            ready, _, _ = select.select([handle], [], [], max(0.0, deadline - monotonic()))
            if not ready:
                raise TimeoutError
            part = os.read(handle, min(count, 1 << 20))
            if not part:
                raise _Died
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def stop(self) -> None:
        self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            try:
                cast(IO[bytes], stream).close()
            except OSError:
                continue  # what was left in the pipe has no reader


class Decoders:
    """A few processes that decode pictures."""

    def __init__(self, count: int = 2, limits: UploadLimits = UploadLimits()) -> None:  # noqa: B008 (frozen)
        self.limits = limits
        self._idle: queue.Queue[_Process | None] = queue.Queue()
        self._lock = threading.Lock()
        self._all: set[_Process] = set()
        self._closed = False
        for _ in range(count):
            self._idle.put(None)  # started when first needed

    @property
    def pids(self) -> list[int]:
        """The process ids of the running decoders."""
        with self._lock:
            return [process.child.pid for process in self._all]

    def rgb(self, data: bytes) -> "Image":
        """A stranger's picture, decoded and shrunk."""
        from PIL import Image

        answer, pixels = self._decode(data, "rgb", self.limits.side)
        return Image.frombytes("RGB", (answer["width"], answer["height"]), pixels)

    def jpeg(self, data: bytes, side: int) -> bytes:
        """A picture as a small JPEG."""
        return self._decode(data, "JPEG", side)[1]

    def _decode(self, data: bytes, form: str, side: int) -> tuple[Any, bytes]:
        if not data:
            raise BadPicture("the picture cannot be used: it is empty.")
        settings = {"pixels": self.limits.pixels, "side": side, "format": form}
        for _ in range(2):
            try:
                answer, result = self._ask(settings, data)
            except _Died:
                continue  # killed from outside, or by this picture: a second time tells
            except TimeoutError:
                raise BadPicture(
                    f"the picture took more than {self.limits.seconds:g} s to decode."
                ) from None
            if not answer["ok"]:
                raise BadPicture(f"the picture cannot be used: {answer['reason']}.")
            return answer, result
        raise BadPicture("the picture cannot be used: the decoder broke down over it.")

    def _ask(self, settings: dict[str, Any], data: bytes) -> tuple[Any, bytes]:
        try:
            process = self._idle.get(timeout=4 * self.limits.seconds)
        except queue.Empty:
            raise Overloaded from None
        try:
            if process is None or process.child.poll() is not None:
                process = self._replace(process)
            return process.ask(settings, data, self.limits.seconds)
        except (_Died, TimeoutError):
            assert process is not None
            self._drop(process)
            process = None
            raise
        finally:
            self._idle.put(process)

    def _replace(self, old: _Process | None) -> _Process:
        if old is not None:
            self._drop(old)
        with self._lock:
            if self._closed:
                raise Overloaded
            process = _Process()
            self._all.add(process)
        return process

    def _drop(self, process: _Process) -> None:
        with self._lock:
            self._all.discard(process)
        process.stop()

    def close(self) -> None:
        """Stop every process."""
        with self._lock:
            self._closed = True
            running, self._all = list(self._all), set()
        for process in running:
            process.stop()


def _one_thread() -> None:
    import torch

    # Requests side by side are quicker than one request over all cores.
    torch.set_num_threads(1)


class Threads:
    """Threads for models and files, with a limit on how much waits."""

    def __init__(self, count: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(count, "simgrad-serve", initializer=_one_thread)
        self._free = threading.Semaphore(count + waiting)

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of `work`, done in a thread."""
        import asyncio

        if not self._free.acquire(blocking=False):
            raise Overloaded
        try:
            future = self._pool.submit(work, *arguments)
        except BaseException:
            self._free.release()
            raise
        # Released when the work is done, not when a client has gone: it still takes the thread.
        future.add_done_callback(lambda _: self._free.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish what is running, forget what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)
