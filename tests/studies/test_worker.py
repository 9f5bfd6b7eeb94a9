"""Workers of a study: first rounds that rows share, waiting for others, lack of memory."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from simgrad.core.errors import Busy, OutOfMemory
from simgrad.core.files import lock
from simgrad.data import Dataset
from simgrad.data.batches import Source
from simgrad.retriever.encoding import building
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import LOCK, write_info
from simgrad.studies import worker
from simgrad.studies.engine import run_local
from simgrad.studies.study import Study
from simgrad.studies.worker import work
from simgrad.training import Run, train
from simgrad.training.loop import Training
from tests.studies.test_study import SMALL, plan

pytestmark = pytest.mark.usefixtures("forked_workers")


def test_a_first_round_is_trained_once_for_all_rows(tmp_path: Path) -> None:
    second = {"epochs": 1, "depth": 20}
    rows = [
        {"label": "tri", "set": {"second_round": {"objective": "off-tri", **second}}},
        {"label": "quin", "set": {"second_round": {"objective": "off-quin", **second}}},
        {"label": "online"},
        {"label": "other", "set": {"lr": 1e-3, "second_round": {"objective": "off-tri", **second}}},
    ]
    fields = {**SMALL["recipe"], "objective": "triplet-sh"}
    study = Study.create(plan(recipe=fields, grid={}, rows=rows, seeds=1), tmp_path / "study")
    places = [study.round_one(recipe) for _, recipe in study.jobs()]
    online = study.path / "runs" / "online-s0"
    assert places[:3] == [online, online, None]
    assert places[3] is not None
    assert places[3].parent == study.path / "round1"
    run_local(study, processes=2, quiet=True)
    assert [run.finished for run in study.runs] == [True] * 4
    assert not list(study.path.glob("runs/*/round1"))
    alone = train(study.jobs()[0][1], tmp_path / "alone", quiet=True)
    assert Run(study.path / "runs" / "tri-s0").test == alone.test


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_a_second_round_goes_on_when_its_first_has_become_a_row_or_is_none_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, after: bool
) -> None:
    second = {"objective": "off-tri", "epochs": 2, "depth": 20}
    fields = {**SMALL["recipe"], "objective": "triplet-sh"}

    def made(online: bool) -> Study:
        rows = [{"label": "tri", "set": {"second_round": second}}, {"label": "online"}]
        chosen = plan(recipe=fields, grid={}, rows=rows[: 1 + online], seeds=1)
        return Study.create(chosen, tmp_path / "study")

    study = made(before)
    folder, recipe = study.jobs()[0]
    original = Training._epoch
    with monkeypatch.context() as patched:

        def stopped(training: Any, asked_to_stop: Any) -> bool:
            begun = training.recipe.candidates is not None and training.progress.epoch == 1
            return not begun and original(training, asked_to_stop)

        patched.setattr(Training, "_epoch", stopped)
        worker._train(folder, recipe, {}, study.round_one(recipe))
    assert Run(folder).info["status"] == "stopped"
    study = made(after)
    assert work(study) == 0
    assert Run(folder).test == train(recipe, tmp_path / "alone", quiet=True).test


def test_runs_of_two_rounds_read_the_data_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy would stay on the GPU until the worker ends."""
    rows = [
        {"label": name, "set": {"second_round": {"objective": name, "epochs": 1, "depth": 20}}}
        for name in ("off-tri", "off-quin")
    ]
    study = Study.create(plan(grid={}, rows=rows, seeds=1), tmp_path)
    kept: list[dict[Any, Any]] = []
    original = worker._train

    def remember(folder: Path, recipe: Recipe, shared: dict[Any, Any], *more: Any) -> Any:
        kept.append(shared)
        return original(folder, recipe, shared, *more)

    monkeypatch.setattr(worker, "_train", remember)
    assert work(study) == 0
    assert sum(isinstance(one, Dataset) for one in kept[0].values()) == 1
    assert sum(isinstance(one, Source) for one in kept[0].values()) == 2  # train and val


def test_nothing_is_drawn_while_a_run_beside_draws_its_initial_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    original = Run.load

    def load(run: Run, device: str = "cpu") -> Any:
        assert building.locked()
        loaded.append(run.name)
        return original(run, device)

    monkeypatch.setattr(Run, "load", load)
    second = {"objective": "off-tri", "epochs": 1, "depth": 20}
    recipe = plan().runs()[0][2].replace(second_round=second)
    train(recipe, tmp_path / "run", quiet=True)
    assert loaded == ["round1", "round1", "run"]  # tested, mined with, and tested


def test_a_run_that_failed_holds_nothing_when_memory_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = plan().runs()[0][2]
    runs: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    def broken(training: Any, _: Any) -> bool:
        runs.append(weakref.ref(training))
        raise MemoryError

    def look() -> None:
        gc.collect()
        alive.extend(run() is not None for run in runs)

    monkeypatch.setattr("simgrad.training.loop.Training._epoch", broken)
    monkeypatch.setattr("simgrad.studies.worker.give_back", look)
    assert isinstance(worker._train(tmp_path / "run", recipe, {}), OutOfMemory)
    assert alive == [False]


def test_a_run_that_found_no_room_comes_last_and_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(plan(), tmp_path)
    tried: list[str] = []

    def full(folder: Path, *_: Any) -> Exception | None:
        tried.append(folder.name)
        first, never = "triplet-s0", "nt-xent-s1"
        lacks = folder.name == never or (folder.name == first and tried.count(first) == 1)
        return OutOfMemory("no room") if lacks else None

    monkeypatch.setattr(worker, "_train", full)
    assert work(study) == 1
    assert sorted(tried[:4]) == sorted(path.name for path, _ in study.jobs())
    assert tried[4:] == ["triplet-s0", "nt-xent-s1"]


def test_the_row_that_takes_longest_begins_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the slow runs of a study come last, and all others wait for them."""
    rows = [{"label": "quick", "set": {"lr": 1e-3}}, {"label": "slow", "set": {"lr": 2e-3}}]
    study = Study.create(plan(grid={}, rows=rows, seeds=4), tmp_path)
    begun: list[str] = []

    def trained(folder: Path, *_: Any) -> None:
        begun.append(folder.name)
        seconds = 9.0 if folder.name.startswith("slow") else 3.0
        write_info(folder, {"status": "finished", "seconds": seconds})

    monkeypatch.setattr(worker, "_train", trained)
    assert work(study) == 0
    assert sorted(begun[:2]) == ["quick-s0", "slow-s0"]  # nothing is known yet
    assert begun[2:] == [f"slow-s{n}" for n in (1, 2, 3)] + [f"quick-s{n}" for n in (1, 2, 3)]


def test_workers_that_begin_together_begin_with_different_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(plan(), tmp_path)
    names = [path.name for path, _ in study.jobs()]
    begun: list[str] = []
    monkeypatch.setattr(worker, "_train", lambda folder, *_: begun.append(folder.name))
    for number in range(2 * len(names)):  # some find nothing left for them
        begun.clear()
        assert work(study, number=number) == 0
        assert begun[0] == names[number % len(names)]
        assert sorted(begun) == sorted(names)


def test_a_run_that_another_process_has_is_tried_last_and_after_a_kill_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(plan(), tmp_path)
    names = [path.name for path, _ in study.jobs()]
    taken, killed = (path / LOCK for path, _ in study.jobs()[:2])
    killed.parent.mkdir(parents=True, exist_ok=True)
    killed.write_text("\n1234 on a machine that is off\n")
    begun: list[str] = []
    monkeypatch.setattr(worker, "_train", lambda folder, *_: begun.append(folder.name))
    with lock(taken, wait=False, what="the run"):
        assert work(study) == 0
    assert begun == names[2:] + names[:2]


def test_a_run_that_failed_before_waits_for_its_first_round_and_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(plan(grid={}, rows=[{"label": "a"}], seeds=1), tmp_path)
    folder = study.jobs()[0][0]
    worker._note_failure(folder, "of an earlier sitting")
    answers: list[Exception | None] = [Busy("on its first round"), OutOfMemory("no room"), None]

    def answer(folder: Path, *_: Any) -> Exception | None:
        if isinstance(answers[0], OutOfMemory):
            worker._note_failure(folder, str(answers[0]))
        return answers.pop(0)

    monkeypatch.setattr(worker, "_train", answer)
    monkeypatch.setattr(worker, "_PATIENCE", 0.0)
    assert work(study) == 0
    assert answers == []


def test_nobody_waits_for_a_run_that_another_process_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(plan(grid={}, rows=[{"label": "a"}], seeds=3), tmp_path)
    folders = [path for path, _ in study.jobs()]

    def answer(folder: Path, *_: Any) -> Exception | None:
        finished = folders if folder == folders[-1] else []  # meanwhile: all of them
        for each in finished:
            write_info(each, {"status": "finished"})
        return None if finished else Busy("another process works on it")

    def waited(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s")

    monkeypatch.setattr(worker, "_train", answer)
    monkeypatch.setattr(worker.time, "sleep", waited)
    assert work(study) == 0


def test_memory_is_not_looked_for_after_a_run_that_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = plan().runs()[0][2]
    finished = tmp_path / "finished"
    train(recipe, finished, quiet=True)
    looked: list[str] = []
    for place in ("studies.worker", "training.sitting"):
        monkeypatch.setattr(f"simgrad.{place}.give_back", lambda: looked.append("again"))
    assert worker._train(finished, recipe, {}) is None
    with lock(tmp_path / "busy" / LOCK, wait=False, what="the run"):
        assert isinstance(worker._train(tmp_path / "busy", recipe, {}), Busy)
    assert looked == []
