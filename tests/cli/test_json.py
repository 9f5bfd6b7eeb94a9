"""`--json`: what a command found, for programs; nothing else is on standard output."""

import importlib
import json
import typing
from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.options import answers, details
from simgrad.cli.program import COMMANDS, main
from simgrad.evaluation import evaluate_similarities
from simgrad.models import models
from simgrad.models.embedders import embedders
from simgrad.objectives import objectives

SILENT = {"demo", "embed", "report", "serve"}  # they print no table


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_prints_a_table_has_it_and_says_so(name: str) -> None:
    module, function, _ = COMMANDS[name]
    command = getattr(importlib.import_module(f"simgrad.cli.{module}"), function)
    assert answers(command) == (name not in SILENT)
    assert ("--json" in details(command)) == (name not in SILENT)
    assert "json" not in typing.get_type_hints(command)


def test_lists_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert {one["name"] for one in told(capsys, "objectives")} == {o.name for o in objectives}
    assert {one["name"] for one in told(capsys, "models")} == {
        m.name for m in (*models, *embedders)
    }
    (one,) = told(capsys, "objectives", "goal")
    assert {"triplet", "pair", "margin"} <= set(one["parameters"])


def test_numbers_are_those_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    scores = np.random.default_rng(0).normal(size=(6, 6)).astype("float32")
    np.savez(tmp_path / "a.npz", similarities=scores, image_of_caption=np.arange(6))
    found = told(capsys, "evaluate", str(tmp_path / "a.npz"))
    assert found["rsum"] == pytest.approx(evaluate_similarities(scores, np.arange(6)).rsum)
    assert found["intervals"]["rsum"][0] <= found["rsum"]


def test_a_mistake_is_told_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["objectives", "tripet", "--json"])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "triplet" in err
