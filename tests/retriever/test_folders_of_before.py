"""A run, a tuned study and a choice of commit aef3eeb are read, evaluated, reported, searched."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import simgrad
from simgrad import Recipe, Run, Study
from simgrad.cli.program import main
from simgrad.runs.recipe import up_to_date
from simgrad.studies.table import build_table

FIXTURES = Path(__file__).parents[1] / "fixtures" / "aef3eeb"
RUNS = ("run", "study/runs/nt-xent-s0", "study/runs/triplet-s0", "choice/model")


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A copy: what is read may be added to."""
    return Path(shutil.copytree(FIXTURES, tmp_path / "before"))


def command(*words: str) -> None:
    with pytest.raises(SystemExit) as left:
        main([*words, "--device", "cpu"])
    assert left.value.code == 0


@pytest.mark.parametrize("name", RUNS)
def test_evaluated(name: str, before: Path) -> None:
    """Its stored ranks, and its model on the same split again, give what its test gave."""
    run = before / name
    told = json.loads((run / "test.json").read_text())["rsum"]
    for number, more in enumerate([(), ("--split", "test")]):
        output = before / f"{number}.json"
        command("evaluate", str(run), *more, "--output", str(output))
        assert json.loads(output.read_text())["rsum"] == pytest.approx(told)


@pytest.mark.parametrize("name", RUNS)
def test_searched(name: str, before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("search", str(before / name), "a red circle", "--json")
    assert len(json.loads(capsys.readouterr().out)["images"]) == 10


@pytest.mark.parametrize("name", ["run", "study", "choice"])
def test_reported(name: str, before: Path) -> None:
    command("report", str(before / name), "--output", str(before / "report.html"))
    assert "nt-xent" in (before / "report.html").read_text() or name == "run"


@pytest.mark.parametrize("name", ["study", "choice"])
def test_its_table_is_the_same(name: str, before: Path) -> None:
    told = json.loads((before / name / "table.json").read_text())
    table = build_table(Study.open(before / name))
    assert [row.label for row in table.rows] == [row["label"] for row in told["rows"]]


def test_recipes_are_read(before: Path) -> None:
    for path in sorted(before.rglob("recipe.yaml")):
        told = yaml.safe_load(path.read_text())
        assert up_to_date(told).items() <= Run.open(path.parent).recipe.to_dict().items()
    full = yaml.safe_load((before / "choice" / "full-run.yaml").read_text())
    assert up_to_date(full).items() <= Recipe(**full).to_dict().items()


def test_a_choice_is_gone_on_with(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything is there already: it is answered again, of the same runs, in today's words."""
    folder = before / "choice"
    told = simgrad.Answer.open(folder)
    command("choose", str(folder))
    again = simgrad.Answer.open(folder)
    assert again.standing == told.standing
    assert all(one in again.text for one in ("nt-xent", "triplet-sh", "1 of 2 epochs"))
    assert len(again.text.splitlines()) <= 5
    assert again.text.splitlines()[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "kind"), [("run", Run), ("study", Study), ("choice", simgrad.Answer)]
)
def test_what_python_made_of_a_folder_stands_for_it(name: str, kind: Any, before: Path) -> None:
    made = kind.open(before / name)
    assert simgrad.open(made, device="cpu").path == simgrad.open(before / name, device="cpu").path
    shown = simgrad.show(made, "a red circle", top=1, device="cpu")
    assert str(shown) == str(simgrad.show(before / name, "a red circle", top=1, device="cpu"))
    assert str(simgrad.plot(made)) == str(simgrad.plot(before / name))
