"""Every setting of every published table is what published/settings.csv says, with its source.

The file also pins what all share, so that a change of a default cannot change a recipe silently.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from simgrad.runs.recipe import Recipe
from simgrad.studies.plan import Plan, offers_of, read_plan
from simgrad.studies.settings import NOT_SETTINGS, _lines, departures
from simgrad.studies.study_file import Row

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
TABLES = [path for path in RECIPES if path.stem.split("-")[0] in ("bleeker", "goal", "aoq")]
CASES = [(path, name) for path in TABLES for name in offers_of(path)]


def differences(plan: Plan, row: Row, recipe: Recipe, round: int) -> dict[str, Any]:
    return departures(row.source, plan.dataset, recipe, round)


@pytest.mark.parametrize(("path", "name"), CASES, ids=lambda x: getattr(x, "stem", x))
def test_every_setting_is_the_published_one(path: Path, name: str) -> None:
    plan = read_plan(path, name)
    assert plan.dataset == name
    for row in plan.rows:
        if row.ensemble:
            continue
        assert row.source, row.label
        recipe = plan.recipe(row, 0)
        assert differences(plan, row, recipe, 1) == {}, row.label
        if recipe.second_round is not None:
            assert differences(plan, row, recipe.round_two(), 2) == {}, row.label


def test_a_changed_default_is_noticed() -> None:
    plan = read_plan(next(p for p in TABLES if p.stem == "bleeker-table1"), "f30k")
    row = plan.rows[0]
    recipe = plan.recipe(row, 0)
    for field, value in (("min_count", 5), ("select", "i2t_r1"), ("precision", "bf16")):
        assert list(differences(plan, row, recipe.replace(**{field: value}), 1)) == [field]
    wider = recipe.replace(model="vse++(backbone=resnet50, word_dimension=301)")
    assert list(differences(plan, row, wider, 1)) == ["model.word_dimension"]


def test_every_line_has_a_source_and_is_used() -> None:
    named = {name for path, dataset in CASES for row in read_plan(path, dataset).rows
             for name in row.source.split()}  # fmt: skip
    known = set(Recipe.model_fields)
    for line in _lines():
        assert line["source"], line
        assert line["system"] in named | {""}, line
        field = line["field"]
        assert field in known or re.fullmatch(r"(model|objective)\.\w+", field), line
    rest = {line["field"] for line in _lines()}
    assert known - NOT_SETTINGS <= rest | {"protocol"}


@pytest.mark.parametrize("path", TABLES, ids=lambda p: p.stem)
def test_the_head_names_where_settings_are_from(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("title:")[0]
    assert "settings.csv" in head
    assert any(word in head for word in ("(paper", "code", "ours"))


@pytest.mark.parametrize("number", [2, 3, 4])
def test_the_second_command_names_the_folder_that_the_first_makes(number: int) -> None:
    path = next(p for p in TABLES if p.stem == f"bleeker-table{number}")
    head = path.read_text(encoding="utf-8").split("title:")[0]
    for name in read_plan(path).offers:
        assert f"simgrad cocos studies/{path.stem}-{name}/runs/*-s0" in head
