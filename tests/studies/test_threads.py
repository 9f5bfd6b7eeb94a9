"""How many threads a study's runs have: decided once, whoever else computes later."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.choosing.choice import Choice
from simgrad.choosing.sizing import Size
from simgrad.cli.study import adapt
from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe
from simgrad.studies import engine
from simgrad.studies.engine import crew_for, crew_here, run_local
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.worker import work

SMALL: dict[str, Any] = {
    "title": "small",
    "recipe": {
        "data": "scenes(train=40, val=10, test=10, features=global)",
        "model": "vse++(dimension=8, word_dimension=8)",
        "epochs": 1,
        "batch": 32,
        "device": "cpu",
        "min_count": 1,
    },
    "grid": {"objective": ["triplet"]},
    "seeds": 1,
}


def plan(**changes: Any) -> Plan:
    return plan_from_dict({**SMALL, **changes}, "test")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A machine of so many cores, of which some are free."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def make(cores: int, free: int) -> None:
        monkeypatch.setattr(engine, "available", lambda: cores)
        monkeypatch.setattr(engine, "free", lambda: free)

    return make


def test_a_study_that_begins_beside_others_goes_on_as_it_began(
    machine: Callable[[int, int], None], forked_workers: None, tmp_path: Path
) -> None:
    machine(2, 1)
    study = Study.create(plan(), tmp_path / "study")
    run_local(study, quiet=True)
    assert [run.threads for run in study.runs] == [1]
    machine(2, 2)  # the others are gone, and there is more to do
    more = Study.create(plan(seeds=2), tmp_path / "study")
    run_local(more, quiet=True)
    assert [run.threads for run in more.runs] == [1, 1]


def test_cores_are_shared_out_and_a_resumed_study_keeps_its_share(
    machine: Callable[[int, int], None], tmp_path: Path
) -> None:
    machine(8, 8)
    study = Study.create(plan(seeds=4), tmp_path / "study")
    crew = crew_here(study, None)
    assert (crew.processes, crew.cores) == (4, 2)
    machine(8, 4)
    assert crew_here(study, None).cores == 1
    study = study.with_threads(2)
    left = Study.create(plan(), tmp_path / "study")  # one run alone is left to do
    crew = crew_here(left, None)
    assert (crew.processes, crew.cores) == (1, 2)
    assert crew_for(left, None, cores=1, gpus=0).processes == 1  # a smaller machine


def test_a_chosen_number_of_threads_is_every_runs(
    machine: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(8, 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    study = Study.create(plan(seeds=4), tmp_path / "a")
    crew = crew_here(study, None)
    assert (crew.processes, crew.cores) == (2, 4)
    asked = Study.create(adapt(plan(seeds=4), threads=8), tmp_path / "b")
    crew = crew_here(asked, None)
    assert (crew.processes, crew.cores) == (1, 8)


def test_the_first_number_stays(tmp_path: Path) -> None:
    study = Study.create(plan(), tmp_path / "study").with_threads(2)
    assert study.with_threads(1).plan.base.threads == 2
    assert Study.create(plan(seeds=2), tmp_path / "study").plan.base.threads == 2
    assert Study.create(adapt(plan(), threads=1), tmp_path / "study").plan.base.threads == 1
    assert work(study) == 0
    assert Study.create(plan(seeds=2), tmp_path / "study").plan.base.threads == 1
    with pytest.raises(InputError, match="begun with `threads=1`"):
        Study.create(adapt(plan(), threads=2), tmp_path / "study")


def test_a_study_of_before_goes_on_as_its_runs_began(tmp_path: Path) -> None:
    study = Study.create(plan(), tmp_path / "study")
    assert work(study) == 0
    more = Study.create(plan(seeds=2), tmp_path / "study")
    count = torch.get_num_threads()
    assert more.with_threads(count + 1).plan.base.threads == count


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="threads"):
        adapt(plan(), threads=0)


def test_a_choice_records_its_threads_and_leaves_the_full_training_free(tmp_path: Path) -> None:
    size = Size(epochs=1, full_epochs=2, trials=1, seeds=2, evaluate_every=None)
    choice = Choice(
        data=SMALL["recipe"]["data"], features=None, skip=None, model=SMALL["recipe"]["model"],
        objectives=("triplet", "nt-xent"), device="cpu", size=size, steps=1, processes=2,
        minutes=1, expected=1, threads=3,
    )  # fmt: skip
    choice.write(tmp_path)
    assert Choice.read(tmp_path) == choice
    assert choice.plan("x").base.threads == 3
    assert Recipe().threads is None
