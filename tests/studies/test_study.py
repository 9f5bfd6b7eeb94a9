"""Studies: plans, workers, extension, tables, engines."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.study import show
from simgrad.core.errors import InputError
from simgrad.studies.engine import failures, run_local, run_ray
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import Cell, Table, TableRow, build_table, number, write_tables
from simgrad.studies.worker import work
from simgrad.training import Run

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
        ({"colour": "red"}, "no field 'colour'"),
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
