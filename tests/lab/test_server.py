"""Connections that say nothing, say half of it, or want something else than HTTP."""

import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.request import urlopen

import pytest

from simgrad.lab import server as module
from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab

HALF = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@pytest.fixture
def address(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server that gives a header half a second."""
    monkeypatch.setattr(module, "_HEADER_SECONDS", 0.5)
    listening = module.listen("127.0.0.1", 0)
    running = module.server(create_app(lab), timeout_graceful_shutdown=1)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    yield listening.getsockname()
    running.should_exit = True
    thread.join(10)


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=10)


def healthy(address: tuple[str, int]) -> bool:
    with urlopen("http://{}:{}/api/health".format(*address), timeout=10) as answer:
        return bool(answer.status == 200)


def is_cut(connection: socket.socket, within: float = 5.0) -> bool:
    """Whether the other side closes this connection without a word."""
    connection.settimeout(within)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("said", [b"", HALF])
def test_a_header_has_a_deadline(address: tuple[str, int], said: bytes) -> None:
    with connect(address) as silent:
        silent.sendall(said)
        assert is_cut(silent)


def test_a_header_that_trickles_in_has_the_same_deadline(address: tuple[str, int]) -> None:
    with connect(address) as slow:
        slow.sendall(HALF)
        start = time.monotonic()
        while not is_cut(slow, 0.05):
            slow.sendall(b"x")
            assert time.monotonic() - start < 5


def test_a_second_request_may_come_late_but_not_by_halves(address: tuple[str, int]) -> None:
    patient = HTTPConnection(*address, timeout=10)
    for _ in range(2):
        patient.request("GET", "/api/health")
        answer = patient.getresponse()
        assert (answer.status, answer.will_close) == (200, False)
        answer.read()
        assert not is_cut(patient.sock, 1.0)  # kept alive for longer than a header may take
        patient.sock.settimeout(10)
    patient.sock.sendall(HALF)
    assert is_cut(patient.sock)
    patient.close()


def test_a_crowd_that_never_finishes_its_header_does_not_take_the_server_away(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HEADER_SECONDS", 600)
    crowd = []
    try:
        for number in range(1100):
            crowd.append(connect(address))
            crowd[-1].sendall(HALF)
            if number % 300 == 299:
                assert healthy(address)
        assert healthy(address)
    finally:
        for one in crowd:
            one.close()


def test_a_web_socket_is_answered_like_any_other_request(address: tuple[str, int]) -> None:
    upgrade = (
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    for place, host, status in (
        ("/none", "127.0.0.1", b"404"),
        ("/api/health", "127.0.0.1", b"200"),
        ("/", "evil.example", b"421"),
    ):
        with connect(address) as asking:
            asking.sendall(upgrade.format(place, host).encode())
            answer = asking.recv(65536)
        assert answer.split(b" ")[1] == status
        assert b"x-content-type-options: nosniff" in answer
        assert b"content-security-policy" in answer
