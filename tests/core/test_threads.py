"""Threads: passive waiting, as many as the machine gives, the same again on resume."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core import threads as module
from simgrad.core.threads import settle, threads
from simgrad.training import Run, train


def test_what_is_set_before_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(module, "crowded", lambda: False)
    bare: dict[str, str] = {}
    settle(bare)
    assert bare["OMP_NUM_THREADS"] == "2"
    assert bare["OMP_WAIT_POLICY"] == "PASSIVE"
    assert (
        0 < int(bare["GOMP_SPINCOUNT"]) < 100_000
    )  # a while: sleeping at once takes twice as long
    chosen = {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "7"}
    settle(chosen)
    assert chosen == {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "7"}
    settle(chosen, 3)  # a worker's share of the machine
    assert chosen["OMP_NUM_THREADS"] == "3"
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    whole: dict[str, str] = {}
    settle(whole)
    assert "OMP_NUM_THREADS" not in whole  # torch counts cores itself


def test_threads_sleep_at_once_where_others_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for running, spins in ((1, True), (3, False)):  # this process is one of them
        monkeypatch.setattr(module, "_running", lambda running=running: running)
        found: dict[str, str] = {}
        settle(found)
        assert (found["GOMP_SPINCOUNT"] != "0") == spins


def test_the_command_settles_how_threads_wait_and_loads_no_torch_before() -> None:
    code = (
        "import os, sys\n"
        "from simgrad.cli.program import main\n"
        "assert 'torch' not in sys.modules\n"
        "try: main(['--version'])\n"
        "except SystemExit: print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)\n"
    )
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "KMP_", "GOMP_"))}
    told = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1] == "PASSIVE False"


def test_so_many_threads_for_a_while() -> None:
    before = torch.get_num_threads()
    with threads(before + 2):
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
    with threads(None):
        assert torch.get_num_threads() == before


def test_a_resumed_run_computes_with_as_many_threads_as_it_began_with(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    recipe, before = small(epochs=1, batch=150), torch.get_num_threads()  # two steps
    with threads(before + 1):
        train(recipe, tmp_path / "run", dataset=scenes, quiet=True, stop_after=0.0)
    assert Run(tmp_path / "run").info["threads"] == before + 1
    train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert Run(tmp_path / "run").info["threads"] == before + 1
    assert torch.get_num_threads() == before
