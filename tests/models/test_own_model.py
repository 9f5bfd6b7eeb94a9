"""A model of one's own, from a file: listed, explained, trained and evaluated like any other."""

import re
from pathlib import Path

import pytest

from simgrad.models import load
from simgrad.runs.run import Run
from tests import processes

PAGE = Path(__file__).parents[2] / "docs/models.md"


def simgrad(*arguments: str) -> str:
    """What the command line prints, in a process of its own: declarations stay there."""
    done = processes.simgrad(*arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The example of the documents."""
    section = PAGE.read_text(encoding="utf-8").split("## A model of your own")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    path = tmp_path / "bag.py"
    path.write_text(code[1], encoding="utf-8")
    return path


@pytest.mark.slow  # lists, training and the report: test_contributing.py
def test_a_model_of_one_s_own(file: Path, tmp_path: Path) -> None:
    listed = simgrad("--with", str(file), "models")
    assert re.search(r"^bag +.*mean word vector", listed, re.MULTILINE)
    assert "bag" not in simgrad("models")
    explained = simgrad("--with", str(file), "models", "bag")
    assert "size of the joint space" in explained

    run = tmp_path / "run"
    simgrad(
        "--with", str(file), "train", "--output", str(run), "--model", "bag(dimension=8)",
        "--data", "scenes(features=global, train=60, val=20, test=20)", "--epochs", "1",
        "--batch", "32", "--objective", "nt-xent", "--device", "cpu",
    )  # fmt: skip
    assert Run.open(run).finished
    assert "rsum" in simgrad("--with", str(file), "evaluate", str(run))
    with pytest.raises(Exception, match="--with"):  # without the file nobody knows it
        load(run / "best")


@pytest.mark.parametrize("name", ["vsrn", "x-vlm", "clip"])
def test_parameters_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from simgrad.cli.models import models as command
    from simgrad.models import models

    command(name)
    printed = capsys.readouterr().out
    for parameter in models[name].parameters:
        assert parameter.name in printed
        assert parameter.description in printed


def test_the_list_has_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    from simgrad.cli.models import models as command
    from simgrad.models import models

    command()
    printed = capsys.readouterr().out
    for declared in models:
        line = rf"^{re.escape(declared.name)} +.*{re.escape(declared.description)}"
        assert re.search(line, printed, re.MULTILINE)
