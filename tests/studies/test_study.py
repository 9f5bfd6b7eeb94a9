"""Studies: plans, workers, extension, tables, engines."""

import csv
import gc
import json
import os
import weakref
from pathlib import Path
from typing import Any

import pytest

from simgrad.data import Dataset
from simgrad.data.batches import Source
from simgrad.errors import InputError
from simgrad.studies import worker
from simgrad.studies.command import show
from simgrad.studies.engine import failures, run_local, run_ray
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import Cell, Table, TableRow, build_table, number, write_tables
from simgrad.studies.worker import work
from simgrad.training import Run
from simgrad.training.loop import _Training, train
from simgrad.training.recipe import Recipe

SMALL: dict[str, Any] = {
    "title": "small",
    "recipe": {
        "data": "scenes(train=40, val=10, test=10, features=global)",
        "model": "vse++(dimension=8, word_dimension=8)",
        "epochs": 1,
        "batch": 32,
        "device": "cpu",
        "workers": 0,
        "min_count": 1,
    },
    "grid": {"objective": ["triplet", "nt-xent"]},
    "seeds": 2,
    "baseline": "triplet",
}


def plan(**changes: Any) -> Plan:
    return plan_from_dict({**SMALL, **changes}, "test")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = Study.create(plan(), tmp_path_factory.mktemp("study") / "small")
    assert work(study) == 0
    return study


def test_every_run_is_done_once(done: Study) -> None:
    assert len(done.runs) == 4
    assert all(run.finished for run in done.runs)
    assert {label: len(runs) for label, runs in done.groups.items()} == {"triplet": 2, "nt-xent": 2}
    before = {run.path: (run.path / "run.json").stat().st_mtime_ns for run in done.runs}
    work(done)
    assert before == {r.path: (r.path / "run.json").stat().st_mtime_ns for r in done.runs}


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
    original = _Training._epoch
    with monkeypatch.context() as patched:

        def stopped(training: Any, asked_to_stop: Any) -> bool:
            begun = training.recipe.candidates is not None and training.at["epoch"] == 1
            return not begun and original(training, asked_to_stop)

        patched.setattr(_Training, "_epoch", stopped)
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

    def remember(folder: Path, recipe: Recipe, shared: dict[Any, Any], *more: Any) -> str | None:
        kept.append(shared)
        return original(folder, recipe, shared, *more)

    monkeypatch.setattr(worker, "_train", remember)
    assert work(study) == 0
    assert sum(isinstance(one, Dataset) for one in kept[0].values()) == 1
    assert sum(isinstance(one, Source) for one in kept[0].values()) == 2  # train and val


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

    monkeypatch.setattr("simgrad.training.loop._Training._epoch", broken)
    monkeypatch.setattr("simgrad.training.graph.give_back", look)
    assert "out of memory" in str(worker._train(tmp_path / "run", recipe, {}))
    assert alive == [False]


def test_a_run_that_found_no_room_comes_last_and_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(plan(), tmp_path)
    tried: list[str] = []

    def full(folder: Path, *_: Any) -> str | None:
        tried.append(folder.name)
        first, never = "triplet-s0", "nt-xent-s1"
        lacks = folder.name == never or (folder.name == first and tried.count(first) == 1)
        return "OutOfMemoryError: CUDA out of memory." if lacks else None

    monkeypatch.setattr(worker, "_train", full)
    assert work(study) == 1
    assert sorted(tried[:4]) == sorted(path.name for path, _ in study.jobs())
    assert tried[4:] == ["triplet-s0", "nt-xent-s1"]


def test_printed_figures_stand_under_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("i2t_r1", "i2t_map5_hits", "t2i_r1", "rsum")  # as published: not recalls first
    ours: dict[str, Cell] = {name: (float(i), None) for i, name in enumerate(names, 11)}
    theirs: dict[str, Cell] = {name: (float(i), None) for i, name in enumerate(names, 21)}
    row = TableRow("a", "", 1, ours, frozenset(), False, None, theirs)
    show(Table("t", "", names, (row,), "published (f30k)"))
    _, ways, kinds, first, second = capsys.readouterr().out.splitlines()
    assert ways.split() == ["i2t", "t2i"]
    assert kinds.split() == ["R@1", "R@1", "i2t", "map5", "hits", "rsum"]
    assert first.split() == ["a", "11.0", "13.0", "12.000", "14.0"]
    assert second.split() == ["published", "(f30k)", "21.0", "23.0", "22.000", "24.0"]


def test_a_table_names_the_data_of_published_numbers(tmp_path: Path) -> None:
    rows = [{"label": "x", "published": {"method": "VSE++", "loss": "Triplet"}}]
    published = {"table": "bleeker_table1.csv", "where": {"dataset": "f30k"}}
    study = Study.create(plan(grid={}, rows=rows, published=published), tmp_path)
    write_tables(build_table(study), tmp_path)
    assert "|   published (f30k) | 30.8" in (tmp_path / "table.md").read_text()
    with pytest.raises(InputError, match="published: where"):
        plan(published={"where": "f30k"})


def test_fast_is_smaller_and_says_so() -> None:
    whole = plan_from_dict({**SMALL, "recipe": {"epochs": 30, "batch": 192}, "seeds": 5}, "test")
    small = whole.fast()
    recipe = small.recipe(small.rows[0], 0)
    assert (recipe.epochs, recipe.batch, len(small.seeds)) == (3, 96, 2)
    assert recipe.model == "vse++(dimension=128, word_dimension=64)"
    assert "fast" in small.title


def test_the_table_says_what_the_runs_say(done: Study) -> None:
    table = build_table(done)
    for row in table.rows:
        values = [run.test["rsum"] for run in done.groups[row.label]]
        assert row.cells["rsum"][0] == pytest.approx(sum(values) / 2)
    assert [row.baseline for row in table.rows] == [True, False]
    difference = table.rows[1].difference
    assert difference is not None
    gap = table.rows[1].cells["rsum"][0] - table.rows[0].cells["rsum"][0]
    assert difference.difference == pytest.approx(gap)


def test_table_files(done: Study, tmp_path: Path) -> None:
    table = build_table(done)
    write_tables(table, tmp_path)
    rows = list(csv.DictReader((tmp_path / "table.csv").open(encoding="utf-8")))
    assert {r["label"] for r in rows} == {"triplet", "nt-xent"}
    assert len(json.loads((tmp_path / "table.json").read_text())["rows"]) == 2
    assert "| triplet |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "\\toprule" in (tmp_path / "table.tex").read_text(encoding="utf-8")


def test_a_study_is_extended_by_seeds_and_never_changed(done: Study) -> None:
    more = Study.create(plan(seeds=3), done.path)
    assert len(more.jobs()) == 6
    assert sum(Run(path).finished for path, _ in more.jobs()) == 4
    with pytest.raises(InputError, match="another recipe"):
        Study.create(plan(recipe={**SMALL["recipe"], "lr": 0.1}), done.path)


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    study = Study.create(plan(), tmp_path / "study")
    run_local(study, processes=2, quiet=True)
    assert all(Run(path).finished for path, _ in study.jobs())
    assert failures(study) == []


def test_a_failing_run_is_named_and_the_others_finish(tmp_path: Path) -> None:
    rows = [
        {"label": "good", "set": {"objective": "triplet"}},
        {"label": "bad", "set": {"objective": "off-tri"}},
    ]
    study = Study.create(plan(grid={}, rows=rows, seeds=1), tmp_path / "study")
    assert work(study) == 1
    assert Run(study.jobs()[0][0]).finished
    (name, reason), *rest = failures(study)
    assert name == "bad-s0"
    assert not rest
    assert "offline" in reason or "candidates" in reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 0}, "seeds"),
        ({"grid": {"objective": []}}, "list of choices"),
        ({"grid": {}}, "needs `rows` or a `grid`"),
        ({"colour": "red"}, "no 'colour'"),
        ({"grid": {"objective": ["tripet"]}}, "Did you mean 'triplet'"),
        ({"grid": {"learning": [1]}}, "no field 'learning'"),
        ({"rows": [{"label": "a"}, {"label": "a"}]}, "two rows are called 'a'"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_before_anything_runs(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        plan(**changes)


def test_numbers() -> None:
    assert number((12.345, 0.67), "rsum") == "12.3 ± 0.7"
    assert number((0.1234, None), "i2t_map5_hits") == "0.123"
    assert number((0.5, None), "t2i_r1") == "0.5"  # a small recall is still percent
    assert number((float("nan"), None), "rsum") == "–"


def test_ray(tmp_path: Path) -> None:
    """Two workers of a local cluster."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        study = Study.create(plan(seeds=1), tmp_path / "study")
        run_ray(study, quiet=True)
        assert all(Run(path).finished for path, _ in study.jobs())
    finally:
        ray.shutdown()
