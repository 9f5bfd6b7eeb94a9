"""A tuned study is the same for any number of workers, however fast they are and however often
they are killed: which settings are tried depends on the study file and its seed alone."""

import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from simgrad.studies.check import check_study
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.worker import work
from simgrad.training.rounds import train
from tests.hardening.jobs import dataset, recipe
from tests.hardening.kills import ended, in_child

pytest.importorskip("optuna")

SEARCHES: dict[str, dict[str, Any]] = {
    "default": {"trials": 8, "finalists": 2, "repeats": 1},
    "tpe": {"trials": 8, "search": "tpe"},
    "quasi-random": {"trials": 9, "search": "quasi-random"},
    "replicates": {
        "trials": 2, "search": "quasi-random", "finalists": 2, "repeats": 1, "replicates": 2,
        "splits": "new", "extend": True, "space": {"clip": {"crossed": [2.0, 0.0]}},
    },
}  # fmt: skip
KILLS, TIMES = 5, 3


def study_of(folder: Path, tune: dict[str, Any]) -> Study:
    values = {
        "title": "timing",
        "recipe": recipe(evaluate_every=None, threads=1).to_dict(),
        "grid": {"objective": ["triplet", "nt-xent"]},
        "baseline": "triplet",
        "seeds": 2,
        "tune": tune,
    }
    return Study.create(plan_from_dict(values, "timing"), folder)


def worked_on(folder: Path, tune: dict[str, Any], seed: int) -> None:
    """As one of several workers, slowed by chance."""
    chance = random.Random(seed)

    def slowly(*given: Any, **more: Any) -> Any:
        time.sleep(chance.uniform(0, 0.4))
        return train(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simgrad.studies.worker.train", slowly)
        assert work(study_of(folder, tune)) == 0


def outcome(folder: Path) -> dict[str, Any]:
    """The bytes of the tables, and every trial; not what anything took in seconds."""
    study = Study.open(folder)
    write_tables(build_table(study), folder)
    found: dict[str, Any] = {
        name: (folder / name).read_bytes() for name in ("table.json", "table.csv", "table.md")
    }
    for tuning in study.tunings:
        record = json.loads(tuning.path.read_text())
        for one in [*record["tried"], record["budget"], record]:
            one.pop("seconds", None)
            one.pop("sha256", None)
        found[tuning.name] = record
    found["runs"] = sorted(p.name for part in ("runs", "trials") for p in (folder / part).iterdir())
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SEARCHES)
def test_a_tuned_study_is_the_same_whatever_the_timing(name: str, tmp_path: Path) -> None:
    assert compare_timings(name, tmp_path, TIMES) == KILLS * TIMES * (1 + 2 + 3)


def compare_timings(name: str, place: Path, times: int) -> int:
    """With 1, 2 and 3 workers, so many times each, killed on the way; how many were killed."""
    tune, killed = SEARCHES[name], 0
    dataset()  # read once, before the first fork
    worked_on(place / "whole", tune, 0)
    expected = outcome(place / "whole")
    chance = random.Random(name)
    for workers in (1, 2, 3):
        for again in range(times):
            folder = place / f"{workers}-{again}"
            for _ in range(KILLS):
                crew = started(folder, tune, workers, chance)
                time.sleep(chance.uniform(0.2, 0.9))
                for child in crew:
                    os.kill(child, signal.SIGKILL)  # not waited for, so its number is its own
                assert {ended(child) for child in crew} == {-signal.SIGKILL}
                killed += workers
            assert {ended(child) for child in started(folder, tune, workers, chance)} == {0}
            assert outcome(folder) == expected, (workers, again)
            assert check_study(Study.open(folder)).problems == []
            print(f"{name}: {workers} workers, killed {KILLS} times: bit-identical", flush=True)
    return killed


def started(folder: Path, tune: dict[str, Any], workers: int, chance: random.Random) -> list[int]:
    """So many workers, as processes."""
    seeds = [chance.randrange(2**31) for _ in range(workers)]
    return [in_child(partial(worked_on, folder, tune, seed)) for seed in seeds]
