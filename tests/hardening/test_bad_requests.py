"""Requests nobody should send: 4xx with a reason, nothing of the machine in the answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra: pip install 'simgrad[serve]'")

from fastapi.testclient import TestClient

from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab
from simgrad.lab.workers import UploadLimits
from tests.hardening.bad_requests import REQUESTS
from tests.hardening.jobs import run_job


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    run = tmp_path_factory.mktemp("served") / "run"
    run_job().work(run)
    lab = Lab([run], limits=UploadLimits(bytes=1 << 20))
    app = create_app(lab)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made


@pytest.mark.parametrize("name", REQUESTS)
def test_refused(client: TestClient, name: str) -> None:
    bad = REQUESTS[name]
    answer = client.request(bad.method, bad.path, content=bad.body, headers=bad.headers)
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert "Traceback" not in answer.text
    assert "root:" not in answer.text
    assert str(Path(__file__).parents[2]) not in answer.text


def test_the_address_that_is_printed_can_be_reached_at_once() -> None:
    import socket

    from simgrad.lab.server import listen

    with listen("127.0.0.1", 0) as listening:
        socket.create_connection(listening.getsockname(), 2).close()


def test_it_still_answers_after_all_of_them(client: TestClient) -> None:
    assert client.get("/api/health").status_code == 200
    assert client.get("/api/search?q=a%20red%20circle").status_code == 200
