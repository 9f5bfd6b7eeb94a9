"""What stands beside published rows: their own columns, cells, deviations, and what was not run."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.study import show
from simgrad.report.build import write_report
from simgrad.runs.run import write_info
from simgrad.studies.papers import beside, published_table
from simgrad.studies.plan import Plan, plan_from_dict, read_plan
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, printed
from simgrad.studies.worker import work
from tests.studies.test_settings import TABLES
from tests.studies.test_study import SMALL

ROOT = Path(__file__).parents[2]


def table_file(stem: str) -> Path:
    return next(path for path in TABLES if path.stem == stem)


def plan(rows: list[dict[str, Any]], published: dict[str, Any], metrics: list[str]) -> Plan:
    told = {k: v for k, v in SMALL.items() if k not in ("grid", "baseline")}
    return plan_from_dict({**told, "rows": rows, "published": published, "metrics": metrics}, "t")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two seeds of one row, as Bleeker's table 1 prints it."""
    row = {"label": "a", "published": {"method": "VSE++", "loss": "Triplet"}}
    where = {"table": "bleeker_table1.csv", "deviation": "population"}
    where["where"] = {"dataset": "f30k"}  # type: ignore[assignment]
    recalls = ["i2t_r1", "i2t_r5", "i2t_r10", "i2t_average_recall", "t2i_average_recall", "rsum"]
    study = Study.create(plan([row], where, recalls), tmp_path_factory.mktemp("beside") / "s")
    assert work(study) == 0
    return study


def test_average_recall_stands_under_the_published_one(
    done: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    table = build_table(done)
    (row,) = table.rows
    assert row.published["i2t_average_recall"] == (55.9, 0.3)
    assert row.published["t2i_average_recall"] == (47.3, 0.1)
    ours = [row.cells[f"i2t_r{k}"].mean for k in (1, 5, 10)]
    assert row.cells["i2t_average_recall"].mean == pytest.approx(sum(ours) / 3)
    show(table)
    told = capsys.readouterr().out
    for text in ("average", "55.9", "47.3"):
        assert text in told


@pytest.mark.parametrize("name", ["f30k", "coco"])
def test_every_published_metric_of_bleekers_table_has_a_column(name: str) -> None:
    made = read_plan(table_file("bleeker-table1"), name)
    for row in made.rows:
        assert set(beside(made.published, row).cells) == set(made.metrics), row.label


def test_a_batch_s_seconds_stand_beside_the_published_ones(tmp_path: Path) -> None:
    made = read_plan(table_file("aoq-supplement3"), "coco")
    seconds = [beside(made.published, row).cells["seconds_per_batch"][0] for row in made.rows]
    assert seconds == [1.096, 1.489, 1.557, 1.604]
    first: dict[str, Any] = {"label": "a", "baseline": True, "set": {"epochs": 3}}
    first["published"] = {"loss": "online triplet"}
    second = {"label": "b", "set": {"objective": "nt-xent"}, "published": {"loss": "OffQuin"}}
    metrics = ["seconds_per_batch", "seconds_ratio", "rsum"]
    told = plan([first, second], {"table": "aoq_supp_table3.csv"}, metrics)
    study = Study.create(told, tmp_path / "s")
    assert work(study) == 0
    for label, each in (("a", 0.25), ("b", 0.5)):  # as if the machine had taken so long
        for run in study.groups[label]:
            history = [{**entry, "batch_seconds": each} for entry in run.history]
            history[0]["batch_seconds"] = each if len(history) == 1 else 9.0  # also warms up
            (run.path / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in history))
            write_info(run.path, run.info)
    table = build_table(study)
    shown = {row.label: row for row in table.rows}
    assert shown["b"].cells["seconds_per_batch"].mean == 0.5
    assert shown["b"].cells["seconds_ratio"].mean == 2.0
    assert shown["b"].published["seconds_ratio"][0] == pytest.approx(1.557 / 1.096)
    assert shown["a"].beside == "published"  # seconds are of no test
    cells = [[str(cell).split(" ")[0] for cell in row[1:3]] for row in printed(table).rows]
    assert cells == [["0.250", "1.00"], ["1.096", "1.00"], ["0.500", "2.00"], ["1.557", "1.42"]]
    page = write_report([study.path], tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(value in page for value in ("0.500", "2.00", "1.557", "1.42"))


def test_whose_deviation_is_which_is_said_under_the_table(
    done: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    table = build_table(done)
    rsum = [run.test["rsum"] for run in done.runs]
    spread = abs(rsum[0] - rsum[1])
    sample = table.rows[0].cells["rsum"].deviation
    assert sample == pytest.approx(spread / math.sqrt(2))  # with n - 1; with n it is spread / 2
    show(table)
    told = capsys.readouterr().out
    for word in ("sample deviation", "population deviation", "1.12"):
        assert word in told
        assert word in "\n".join(printed(table).notes)
    assert math.sqrt(5 / 4) == pytest.approx(1.12, abs=0.005)


def test_all_of_bleekers_tables_say_so_and_no_other() -> None:
    for path in TABLES:
        told = read_plan(path).published.get("deviation")
        assert told == ("population" if path.stem.startswith("bleeker") else None), path.stem


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_what_nobody_ran_is_said_to_be_so(path: Path) -> None:
    """Until somebody's results lie in results/, no head and no page may promise any."""
    kept = any((ROOT / "results").glob(f"**/{path.stem}*"))
    head = path.read_text(encoding="utf-8").split("title:")[0]
    assert ("Ours: not run" in head) == (not kept)
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert "we have no numbers of our own on them" in " ".join(page.split())
    command = f"simgrad study recipes/{path.name} --data DATA"
    assert command in head


def test_the_published_numbers_are_all_there() -> None:
    counts = {name: len(published_table(name)) for name in (
        "bleeker_table1.csv", "goal_table3.csv", "goal_table6.csv", "aoq_main_tables.csv"
    )}  # fmt: skip
    assert counts == {
        "bleeker_table1.csv": 160,
        "goal_table3.csv": 60,
        "goal_table6.csv": 144,
        "aoq_main_tables.csv": 168,
    }
