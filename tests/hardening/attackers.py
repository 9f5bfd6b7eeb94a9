"""Clients nobody wants: slow, cut off, too large, wrong, and one that kills the decoders."""

import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from tests.hardening.bad_requests import FORM, REQUESTS

Body = bytes | Iterator[bytes]
_HEAD = "POST /api/search/picture HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n"


def children(process: int) -> list[int]:
    """Of all its threads."""
    found = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(child) for child in file.read_text().split()]
        except OSError:
            continue  # the thread has ended since it was listed
    return found


class Attackers:
    """Each kind in a thread of its own, one attack after another, until the block ends."""

    def __init__(self, address: str, server: int) -> None:
        self.address, self.server = address, server
        self.place = (address.split("//")[1].split(":")[0], int(address.rsplit(":", 1)[1]))
        self.attacks: dict[str, int] = {}
        self.killed = 0
        self.faults: list[str] = []
        self.stop = threading.Event()
        kinds = (self._cut, self._slow, self._deaf, self._large, self._wrong, self._kill)
        self.threads = [threading.Thread(target=self._repeat, args=(kind,)) for kind in kinds]

    def __enter__(self) -> "Attackers":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _repeat(self, attack: Callable[[], None]) -> None:
        name = attack.__name__.strip("_")
        while not self.stop.is_set():
            try:
                attack()
                self.attacks[name] = self.attacks.get(name, 0) + 1
            except (OSError, httpx.HTTPError):
                pass  # the server hung up on an attacker
            self.stop.wait(0.05)

    def _cut(self) -> None:
        """Gone in the middle of a request."""
        with socket.create_connection(self.place, 5) as connection:
            connection.sendall(_HEAD.encode()[: random.randrange(10, len(_HEAD))])

    def _slow(self) -> None:
        """One byte after another, of the head or of the body."""
        text = random.choice(["GET /api/overview HTTP/1.1\r\nHost", _HEAD + "x" * 40])
        with socket.create_connection(self.place, 5) as connection:
            for byte in text.encode():
                connection.sendall(bytes([byte]))
                if self.stop.wait(0.02):
                    return

    def _deaf(self) -> None:
        """Asks for pages and never reads them."""
        with socket.create_connection(self.place, 5) as connection:
            for _ in range(20):
                connection.sendall(b"GET /api/objectives HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                if self.stop.wait(0.05):
                    return

    def _large(self) -> None:
        """9 MiB are allowed and are no picture; 12 MiB are not, with their length told or not."""
        mebibytes = random.choice([9, 12])
        parts = [b"--x\r\n", *[os.urandom(1 << 20)] * mebibytes]
        told = random.random() < 0.5
        body: Body = b"".join(parts) if told else iter(parts)
        self._send("large upload", "POST", "/api/search/picture", body, FORM)
        self.stop.wait(1.0)

    def _wrong(self) -> None:
        name, bad = random.choice(list(REQUESTS.items()))
        self._send(name, bad.method, bad.path, bad.body, bad.headers)

    def _send(
        self,
        name: str,
        method: str,
        path: str,
        body: bytes | Iterator[bytes],
        headers: dict[str, str],
    ) -> None:
        address = self.address + path
        answer = httpx.request(method, address, content=body, headers=headers, timeout=60)
        if answer.status_code >= 500:
            self.faults.append(f"{name}: {answer.status_code}")

    def _kill(self) -> None:
        self.stop.wait(2.0)
        found = children(self.server)
        if found and not self.stop.is_set():
            os.kill(random.choice(found), signal.SIGKILL)
            self.killed += 1
