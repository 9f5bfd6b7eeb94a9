"""Workers that are forked: what was read before them is not read again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simgrad.core.files import held
from simgrad.data.base import Split
from simgrad.data.batches import Tokens
from simgrad.data.vocabulary import Tokenizer
from simgrad.runs.run import LOCK
from simgrad.studies.forked_workers import CAN_FORK, read_for
from simgrad.studies.study import Study
from simgrad.studies.worker import work
from tests.studies.test_study import SMALL, plan


def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.create(plan(seeds=1), tmp_path / "study")
    shared = read_for(study)
    read: list[str] = []
    original = Tokens.of

    def noted(split: Split, tokenizer: Tokenizer) -> Tokens:
        read.append(split.name)
        return original(split, tokenizer)

    monkeypatch.setattr(Tokens, "of", noted)
    assert work(study, shared=shared) == 0
    assert set(read) == {"test"}  # which a run reads when it has ended
    assert work(Study.create(plan(seeds=1), tmp_path / "other")) == 0
    assert set(read) == {"train", "val", "test"}


def test_reading_ahead_leaves_a_wrong_run_to_itself(tmp_path: Path) -> None:
    rows = [
        {"label": "good", "set": {"objective": "triplet"}},
        {"label": "bad", "set": {"data": str(tmp_path / "nothing")}},
    ]
    study = Study.create(plan(grid={}, rows=rows, seeds=1), tmp_path / "study")
    assert work(study, shared=read_for(study)) == 1


@pytest.mark.long
@pytest.mark.skipif(not CAN_FORK, reason="workers are started one by one here")
def test_a_crew_that_is_told_to_stop_tells_its_workers(tmp_path: Path) -> None:
    fields = {**SMALL["recipe"], "epochs": 500}
    study = Study.create(plan(recipe=fields), tmp_path / "study")
    logs = [str(tmp_path / f"{number}.txt") for number in range(2)]
    command = [sys.executable, "-m", "simgrad.studies.forked_workers", str(study.path)]
    command += [json.dumps([(log, {}) for log in logs]), "1"]
    crew = subprocess.Popen(
        command, stdin=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    paths = [path for path, _ in study.jobs()]
    until = time.monotonic() + 60
    while sum(held(path / LOCK) for path in paths) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    crew.send_signal(signal.SIGTERM)
    crew.wait(30)
    assert not any(held(path / LOCK) for path in paths)  # they were awaited
    assert all(Path(log).is_file() for log in logs)
