"""The lab page under load and under attack at the same time, then killed and started again.

Sixty-four clients of `benchmarks/serve.py` ask one thing after another; beside them are the
attackers. Memory is looked at all the time, of the server and its decoders together.
"""

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.hardening.attackers import Attackers, children

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@dataclass
class Served:
    """What came of it."""

    requests: int
    failures: dict[str, int]
    declined: int  # 422: an upload whose decoder was killed twice
    attacks: dict[str, int]
    decoders_killed: int
    p50: float
    p99: float
    mebibytes: tuple[float, float]  # before, and the most that was seen


class Memory:
    """The most that a server and its decoders took while the block ran."""

    def __init__(self, measure: Any, server: int) -> None:
        self.measure, self.server = measure, server
        self.stop = threading.Event()
        self.before = self.most = measure(server)
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.stop.wait(0.5):
            try:
                self.most = max(self.most, self.measure(self.server))
            except OSError:
                continue  # a decoder was killed while it was being measured


def wait_for(address: str) -> None:
    """Until it answers."""
    for _ in range(300):
        try:
            httpx.get(f"{address}/api/health", timeout=5)
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")


def serve_under_load(seconds: float) -> Served:
    """Serve for so long; the numbers."""
    sys.path.insert(0, str(BENCHMARKS))
    bench = importlib.import_module("serve")
    from simgrad.data import open_dataset

    split = open_dataset(bench.DATA).split("test")
    captions = [split.captions[i] for i in range(0, 500, 7)]
    with tempfile.TemporaryDirectory() as folder, bench._server(Path(folder)) as (address, server):
        wait_for(address)
        picture = Path(folder) / "a.png"
        assert split.pictures is not None
        split.pictures.picture(3).save(picture)
        with Memory(bench._memory, server) as memory, Attackers(address, server) as attackers:
            work = bench._clients(address, seconds, captions, picture.read_bytes())
            times, failed = asyncio.run(work)
        kill_and_start_again(Path(folder) / "run", address, server)
    every = sorted(t for found in times.values() for t in found)
    declined = failed.pop("422", 0)
    for fault in attackers.faults:
        failed[fault] += 1
    return Served(
        requests=len(every) + declined + sum(failed.values()),
        failures=dict(failed),
        declined=declined,
        attacks=attackers.attacks,
        decoders_killed=attackers.killed,
        p50=every[len(every) // 2],
        p99=every[int(0.99 * (len(every) - 1))],
        mebibytes=(memory.before, memory.most),
    )


def kill_and_start_again(run: Path, address: str, server: int) -> None:
    """SIGKILL the server: its decoders go with it, and another on the same port answers alike."""
    asked = f"{address}/api/search?q=a%20red%20circle"
    before = httpx.get(asked, timeout=60).json()
    decoders = children(server)
    os.kill(server, signal.SIGKILL)
    port = address.rsplit(":", 1)[1]
    words = [sys.executable, "-m", "simgrad.cli", "serve", str(run), "--port", port]
    words += ["--token", "none"]
    again = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        wait_for(address)
        after = httpx.get(asked, timeout=60).json()
    finally:
        again.kill()
        again.wait()
    for answer in (*before, *after):
        answer.pop("milliseconds")
    assert after == before, "another answer after a restart"
    assert not [d for d in decoders if _alive(d)], "decoders outlived the server"


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # ended, and its new parent has not asked yet
