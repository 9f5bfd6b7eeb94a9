"""Answers on the yes/no page, and a server that is killed without warning."""

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from simgrad.cli.serve import serve
from simgrad.data.found import ANSWERS, CHOICES, Pair, read_found
from tests.lab.conftest import QUESTIONS, with_questions
from tests.processes import free_port, started

ADDRESS = "/runs/asked/false-negatives"


@pytest.fixture
def asked(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a run with pairs to judge."""
    return with_questions(runs["nt"], tmp_path / "asked")


def serving(rank: int, run: str, port: int) -> None:
    serve((run,), port=port, device="cpu", token="none")


@contextmanager
def server(run: Path) -> Iterator[tuple[Any, int]]:
    """The process of a server that answers, and its port."""
    port = free_port()
    (process,) = started(serving, 1, str(run), port)
    try:
        end = time.monotonic() + 60
        while True:
            with suppress(OSError, HTTPException):
                if request(port, "GET", "/api/health")[0] == 200:
                    break
            assert process.exitcode is None, "the server ended by itself"
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.02)
        yield process, port
    finally:
        process.kill()
        process.join()


def request(port: int, method: str, path: str, **form: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        kind = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
        connection.request(method, path, urlencode(form) if form else None, kind)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def say(port: int, pair: Pair, said: str) -> None:
    """Returns when the server has acknowledged the answer."""
    form = {"image": pair.image, "caption": pair.caption, "said": said}
    status, _ = request(port, "POST", ADDRESS, **form)
    assert status == 303


def lines(run: Path) -> list[str]:
    """The answers in the order in which they were given; every line is whole."""
    text = (run / "false-negatives" / ANSWERS).read_text("utf-8")
    assert text.endswith("\n")
    return [json.loads(line)["answer"] for line in text.splitlines()]


def answers_until_killed(port: int, pid: int, pairs: list[Pair], delay: float) -> list[str]:
    """What was acknowledged of answers without a pause, up to a kill soon after the second."""
    acknowledged: list[str] = []
    timer = threading.Timer(delay, os.kill, (pid, signal.SIGKILL))
    with suppress(OSError, HTTPException):
        for k in itertools.count():
            say(port, pairs[k % len(pairs)], CHOICES[k % 3])
            acknowledged.append(CHOICES[k % 3])
            if k == 1:
                timer.start()
    timer.join()
    return acknowledged


@pytest.mark.long
def test_what_was_acknowledged_is_there_after_a_kill(asked: Path) -> None:
    pairs, told = read_found(asked / "false-negatives"), []
    for pair, said in zip(pairs, ("yes", "no", "unsure"), strict=False):
        with server(asked) as (process, port):
            page = request(port, "GET", ADDRESS)[1]
            assert f"{len(told)} of {QUESTIONS} pairs answered" in page
            say(port, pair, said)
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        told.append(said)
        assert lines(asked) == told
        kept = [pair.answer for pair in read_found(asked / "false-negatives")]
        assert kept == [*told, *[None] * (QUESTIONS - len(told))]


@pytest.mark.long
def test_a_kill_at_any_moment_costs_at_most_the_answer_on_its_way(asked: Path) -> None:
    pairs, known = read_found(asked / "false-negatives"), list[str]()
    for delay in (0.0, 0.003, 0.02):
        with server(asked) as (process, port):
            if known:  # the next server goes on in the same file
                say(port, pairs[0], "no")
                known.append("no")
                assert lines(asked) == known
            known += answers_until_killed(port, process.pid, pairs, delay)
            process.join()
        found = lines(asked)
        assert found[: len(known)] == known
        assert len(found) - len(known) in (0, 1)
        known = found
