"""Threads: passive waiting, as many as are free, the same again on resume."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core import threads as module
from simgrad.core.threads import fewer, pinned, settle, threads, whole_cores
from simgrad.training import Run, train


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine of so many cores, of which this process may use some, with others that compute."""

    def make(*, whole: int, own: int, others: int = 0) -> None:
        monkeypatch.setattr(module, "cores", lambda: own)
        monkeypatch.setattr(module, "whole_cores", lambda: whole)
        monkeypatch.setattr(os, "cpu_count", lambda: whole)
        monkeypatch.setattr(module, "_running", lambda: others + 1)  # this process is one of them
        monkeypatch.setattr(module, "_taken", None)

    return make


def test_what_is_set_before_torch_is_loaded(machine: Callable[..., None]) -> None:
    machine(whole=64, own=2)
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
    machine(whole=2, own=2)
    all_of_it: dict[str, str] = {}
    settle(all_of_it)
    assert "OMP_NUM_THREADS" not in all_of_it  # torch counts cores itself


@pytest.mark.parametrize(
    ("whole", "own", "others", "taken"),
    [(2, 2, 1, 1), (2, 2, 2, 1), (2, 2, 9, 1), (16, 16, 4, 12), (16, 4, 4, 4), (16, 4, 14, 2)],
)
def test_as_many_threads_as_cores_are_free(
    machine: Callable[..., None], whole: int, own: int, others: int, taken: int
) -> None:
    machine(whole=whole, own=own, others=others)
    found: dict[str, str] = {}
    settle(found)
    assert found["OMP_NUM_THREADS"] == str(taken)
    assert (found["GOMP_SPINCOUNT"] == "0") == (taken < own)  # where others compute, none spins


def test_a_chosen_number_stays_where_others_compute(machine: Callable[..., None]) -> None:
    machine(whole=2, own=2, others=2)
    chosen = {"OMP_NUM_THREADS": "2"}
    settle(chosen)
    assert chosen["OMP_NUM_THREADS"] == "2"
    assert chosen["GOMP_SPINCOUNT"] == "0"


def test_what_a_command_took_itself_is_nobodys_choice(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(whole=4, own=4, others=1)
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "1")  # put back after the test
    assert pinned() == 1
    assert fewer() is None
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert pinned() is None
    settle()
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert pinned() is None
    assert "3 of 4 threads" in str(fewer())


def test_cores_that_do_two_things_at_a_time_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(4):
        place = tmp_path / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{number % 2},{number % 2 + 2}\n")
    monkeypatch.setattr("simgrad.core.threads._TOPOLOGY", tmp_path)
    assert whole_cores() == 2
    monkeypatch.setattr("simgrad.core.threads._TOPOLOGY", tmp_path / "none")
    assert whole_cores() == os.cpu_count()


def test_the_command_settles_how_threads_wait_and_loads_no_torch_before() -> None:
    code = (
        "import os, sys\n"
        "from simgrad.cli.program import main\n"
        "assert 'torch' not in sys.modules\n"
        "try: main([])\n"
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


def test_a_run_says_how_many_threads_it_keeps_to(
    small: Any,
    scenes: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("simgrad.training.sitting.fewer", lambda: "others compute here")
    recipe = small(epochs=1, batch=150)
    train(recipe, tmp_path / "run", dataset=scenes, stop_after=0.0)
    assert "others compute here" in capsys.readouterr().err
    began = Run(tmp_path / "run").threads
    asked = recipe.replace(threads=torch.get_num_threads() + 2)
    train(asked, tmp_path / "run", dataset=scenes)
    told = capsys.readouterr().err
    assert "others compute here" not in told
    assert f"began with `threads={began}`" in told
    train(asked, tmp_path / "other", dataset=scenes)
    assert "threads" not in capsys.readouterr().err  # as it was asked for: nothing to say
    assert Run(tmp_path / "other").threads == torch.get_num_threads() + 2


def test_a_second_round_has_as_many_threads_as_the_first(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    again = {"objective": "adap-off-quin", "depth": 5, "epochs": 1}
    recipe = small(epochs=1, batch=150, objective="triplet", second_round=again)
    count = torch.get_num_threads() + 1
    with threads(count):  # it was stopped, say, after its first round
        train(recipe.replace(second_round=None), tmp_path / "run" / "round1", dataset=scenes)
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert (Run(tmp_path / "run" / "round1").threads, run.threads) == (count, count)
