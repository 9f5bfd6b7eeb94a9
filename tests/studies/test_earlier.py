"""Study and run folders of an earlier version are evaluated, reported, searched and extended."""

import json
import shutil
from pathlib import Path

import pytest

from simgrad.cli.program import main
from simgrad.retriever.counting import count_run
from simgrad.retriever.opening import open_folder
from simgrad.studies.study import Study
from simgrad.studies.table import build_table
from simgrad.studies.worker import work
from simgrad.training import Run

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "study-71b75c7", tmp_path / "study"))


def command(*words: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 0


def test_evaluated(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = earlier / "runs" / "nt-xent-s0"
    command("evaluate", str(run), "--device", "cpu")
    command("evaluate", str(run), "--split", "val", "--device", "cpu")
    assert "R@1" in capsys.readouterr().out
    assert Run.open(run).test["rsum"] > 0


def test_reported(earlier: Path, tmp_path: Path) -> None:
    command("report", str(earlier), "--output", str(tmp_path / "r.html"), "--device", "cpu")
    page = (tmp_path / "r.html").read_text()
    assert "triplet-sh" in page
    assert "nt-xent" in page


def test_searched(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = earlier / "runs" / "triplet-sh-s1"
    command("search", str(run), "a red circle", "--device", "cpu", "--json")
    assert json.loads(capsys.readouterr().out)["images"]


def test_counted(earlier: Path) -> None:
    counts = count_run(open_folder(earlier / "runs" / "triplet-sh-s0", device="cpu"), batches=1)
    assert counts.corrected.rows()


def test_its_table_is_the_same(earlier: Path) -> None:
    told = json.loads((earlier / "table.json").read_text())
    table = build_table(Study.open(earlier))
    assert [row.label for row in table.rows] == [row["label"] for row in told["rows"]]
    for row, before in zip(table.rows, told["rows"], strict=True):
        mean = before["cells"]["rsum"][0]
        runs = Study.open(earlier).groups[row.label]
        assert sum(run.test["rsum"] for run in runs) / len(runs) == pytest.approx(mean)


def test_its_finished_runs_are_left_as_they_are(earlier: Path) -> None:
    before = {p: p.read_bytes() for p in earlier.rglob("*") if p.is_file()}
    assert work(Study.open(earlier)) == 0
    assert {p: p.read_bytes() for p in before} == before
