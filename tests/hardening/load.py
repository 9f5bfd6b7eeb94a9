"""The lab page under load and under attack at the same time.

Sixty-four clients of `benchmarks/serve.py` ask one thing after another; beside them others send
slowly, cut their connections, upload too much, send what is wrong, and kill the decoders.
"""

import asyncio
import importlib
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.hardening.bad_requests import REQUESTS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@dataclass
class Served:
    """What came of it."""

    requests: int
    failures: dict[str, int]
    declined: dict[str, int]  # 503: too much at once; 422: an upload whose decoders were killed
    attacks: int
    decoders_killed: int
    p99: float
    mebibytes: tuple[float, float]


class Attackers:
    """Everything that is not a good client."""

    def __init__(self, address: str, server: int) -> None:
        self.address, self.server = address, server
        self.place = (address.split("//")[1].split(":")[0], int(address.rsplit(":", 1)[1]))
        self.attacks = self.killed = 0
        self.faults: list[str] = []
        self.stop = threading.Event()
        kinds = (self._cut, self._slow, self._wrong, self._kill)
        self.threads = [threading.Thread(target=self._repeat, args=(kind,)) for kind in kinds]

    def __enter__(self) -> "Attackers":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _repeat(self, attack: Any) -> None:
        while not self.stop.is_set():
            try:
                attack()
                self.attacks += 1
            except (OSError, httpx.HTTPError):
                pass  # the server hung up on an attacker
            self.stop.wait(0.05)

    def _cut(self) -> None:
        with socket.create_connection(self.place, 5) as connection:
            head = "POST /api/search/picture HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999"
            connection.sendall(f"{head}\r\n\r\n".encode()[: random.randrange(10, 90)])

    def _slow(self) -> None:
        with socket.create_connection(self.place, 5) as connection:
            for byte in b"GET /api/overview HTTP/1.1\r\nHost":
                connection.sendall(bytes([byte]))
                if self.stop.wait(0.02):
                    return

    def _wrong(self) -> None:
        name, bad = random.choice(list(REQUESTS.items()))
        answer = httpx.request(
            bad.method, self.address + bad.path, content=bad.body, headers=bad.headers, timeout=30
        )
        if answer.status_code >= 500 and answer.status_code != 503:
            self.faults.append(f"{name}: {answer.status_code}")

    def _kill(self) -> None:
        self.stop.wait(2.0)
        for file in Path(f"/proc/{self.server}/task").glob("*/children"):
            children = file.read_text().split()
            if children:
                os.kill(int(random.choice(children)), signal.SIGKILL)
                self.killed += 1
                return


def _wait_for(address: str) -> None:
    """Until it answers."""
    for _ in range(100):
        try:
            httpx.get(f"{address}/api/health", timeout=5)
            return
        except httpx.HTTPError:
            time.sleep(0.1)


def serve_under_load(seconds: float) -> Served:
    """Serve for so long; the numbers."""
    sys.path.insert(0, str(BENCHMARKS))
    bench = importlib.import_module("serve")
    from simgrad.data import open_dataset

    split = open_dataset(bench.DATA).split("test")
    captions = [split.captions[i] for i in range(0, 500, 7)]
    with tempfile.TemporaryDirectory() as folder, bench._server(Path(folder)) as (address, server):
        _wait_for(address)
        before = bench._memory(server)
        picture = Path(folder) / "a.png"
        assert split.pictures is not None
        split.pictures.picture(3).save(picture)
        with Attackers(address, server) as attackers:
            work = bench._clients(address, seconds, captions, picture.read_bytes())
            times, failed = asyncio.run(work)
        time.sleep(0.5)
        after = bench._memory(server)
        assert httpx.get(f"{address}/api/health").status_code == 200
    every = sorted(t for found in times.values() for t in found)
    declined = {k: n for k, n in failed.items() if k in ("503", "422")}
    faults = {k: n for k, n in failed.items() if k not in declined}
    for fault in attackers.faults:
        faults[fault] = faults.get(fault, 0) + 1
    p99 = every[int(0.99 * (len(every) - 1))]
    done = len(every) + sum(failed.values())
    return Served(done, faults, declined, attackers.attacks, attackers.killed, p99, (before, after))
