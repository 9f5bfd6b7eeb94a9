"""Rows that are the mean similarities of other rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.cli.study import conclude
from simgrad.core.errors import InputError
from simgrad.evaluation import evaluate_similarities
from simgrad.report.build import write_report
from simgrad.report.material import collect
from simgrad.report.standings import standings
from simgrad.retriever.opening import open_folder
from simgrad.studies.ensembles import complete_ensembles
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import build_table
from simgrad.studies.worker import work
from tests.studies.test_study import SMALL

ROWS: list[dict[str, Any]] = [
    {"label": "a", "group": "one", "baseline": True, "set": {"objective": "triplet"}},
    {"label": "b", "group": "one", "set": {"objective": "nt-xent"}},
    {"label": "a twice", "group": "two", "baseline": True, "ensemble": ["a", "a"]},
    {"label": "a and b", "group": "two", "ensemble": ["a", "b"]},
]


def plan(**changes: Any) -> Plan:
    told = {k: v for k, v in SMALL.items() if k not in ("grid", "baseline")}
    return plan_from_dict({**told, "rows": ROWS, **changes}, "test")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = Study.create(plan(), tmp_path_factory.mktemp("study") / "s")
    assert work(study) == 0
    assert complete_ensembles(study, "cpu") == []
    return study


def test_they_are_not_trained_and_have_rows_of_the_table(done: Study) -> None:
    assert len(done.plan.runs()) == 4
    rows = {row.label: row for row in build_table(done).rows}
    assert [rows[label].seeds for label in ("a", "b", "a twice", "a and b")] == [2, 2, 1, 2]
    assert rows["b"].difference is not None
    assert rows["a and b"].difference is None  # its baseline has one run: no spread is known


def test_the_numbers_are_those_of_mean_similarities(done: Study) -> None:
    row = next(row for row in done.plan.rows if row.label == "a and b")
    for folder, members in zip(done.folders(row), done.members(row), strict=True):
        systems = [open_folder(run, device="cpu").similarities() for run in members]
        blocks = [system.scores.compute(0, 10) for system in systems]
        mean = np.mean([block.double().numpy() for block in blocks], axis=0)
        metrics = evaluate_similarities(mean, systems[0].split.image_of_caption).to_dict()
        run = next(r for r in done.groups[row.label] if r.path == folder)
        for name in ("rsum", "i2t_r1", "t2i_r10"):
            assert run.test[name] == pytest.approx(metrics[name])


def test_a_row_named_twice_gives_two_of_its_seeds(done: Study) -> None:
    row = next(row for row in done.plan.rows if row.label == "a twice")
    (members,) = done.members(row)
    assert [run.recipe.seed for run in members] == [0, 1]


def test_they_are_tested_again_only_when_a_member_has_changed(done: Study) -> None:
    row = next(row for row in done.plan.rows if row.label == "a twice")
    (folder,) = done.folders(row)
    before = (folder / "run.json").stat().st_mtime_ns
    complete_ensembles(done, "cpu")
    assert (folder / "run.json").stat().st_mtime_ns == before


def test_they_wait_for_their_members(tmp_path: Path) -> None:
    study = Study.create(plan(), tmp_path)
    waiting = dict(complete_ensembles(study, "cpu"))
    assert "a-s0" in waiting["a-twice-s0"]
    with pytest.raises(InputError, match="did not finish"):
        conclude(study, "cpu")


def test_a_study_folder_reads_back(done: Study) -> None:
    again = Study.open(done.path).plan
    assert [row.ensemble for row in again.rows] == [row.ensemble for row in done.plan.rows]
    Study.create(plan(seeds=3), done.path)  # extended: ensembles keep their own names
    assert [row.name for row in Study.open(done.path).plan.rows][2:] == ["a-twice", "a-and-b"]


def test_a_report_shows_them_like_any_system(done: Study, tmp_path: Path) -> None:
    material = collect([done.path])
    assert [system.label for system in material.systems] == ["a", "b", "a twice", "a and b"]
    assert {system.label for system, _ in material.runs} == {"a", "b"}  # what was trained
    (standing,) = [s for s in standings(material) if s.group == "two"]
    tables = {row.label: row for row in build_table(done).rows}
    for label in ("a twice", "a and b"):
        shown, there = standing.numbers[label]["rsum"], tables[label].cells["rsum"]
        assert shown.mean == pytest.approx(there.mean)
    page = write_report([done.path], tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("a and b: a, b", "a twice: 2 seeds of a", "1 average", " averages<"):
        assert words in page


def test_published_numbers_of_averages_are_in_the_report(tmp_path: Path) -> None:
    """AOQ's published rows are averages of two models."""
    paper = {"table": "aoq_main_tables.csv", "where": {"dataset": "coco", "split": "test1k-5fold"}}
    rows = [dict(row) for row in ROWS]
    rows[2]["published"] = {"method": "VSRN", "loss": "online triplet"}
    study = Study.create(plan(rows=rows, published=paper), tmp_path)
    systems = {system.label: system for system in collect([study.path]).systems}
    assert systems["a twice"].published["i2t_r1"] == (76.2, None)
    assert "averages wait for their models" in " ".join(collect([study.path]).missing)


def test_members_must_be_rows_that_are_trained() -> None:
    for label in ("c", "a twice"):
        with pytest.raises(InputError, match=f"ensemble.*{label}"):
            plan(rows=[*ROWS, {"label": "x", "ensemble": [label]}])
