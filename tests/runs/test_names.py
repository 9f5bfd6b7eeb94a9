"""Names in a recipe that nobody has declared: all told at once, with file and field."""

from pathlib import Path

import pytest

import simgrad
from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe, read_recipe
from simgrad.runs.recipe_names import check_names
from simgrad.studies.plan import plan_from_dict

WRONG = {"objective": "nope", "model": "nix", "select": "foo", "augment": "blur"}


def test_all_wrong_names_of_a_file_are_told_with_their_fields(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("\n".join(f"{field}: {name}" for field, name in WRONG.items()))
    with pytest.raises(InputError) as refused:
        simgrad.train(file, tmp_path / "run", quiet=True)
    lines = str(refused.value).splitlines()
    assert len(lines) == len(WRONG)
    for field, name in WRONG.items():
        assert any(line.startswith(f"{file}: {field}: ") and f"'{name}'" in line for line in lines)
    assert not (tmp_path / "run").exists()


def test_a_second_round_has_fields_of_its_own() -> None:
    recipe = Recipe(objective="nope", second_round={"objective": "off-trii", "epochs": 1})
    with pytest.raises(InputError) as refused:
        check_names(recipe, "recipe")
    first, second = str(refused.value).splitlines()
    assert first.startswith("recipe: objective: ")
    assert second.startswith("recipe: second_round: objective: ")
    assert "'off-tri'" in second


def test_every_row_of_a_study_is_told() -> None:
    rows = [
        {"label": "one", "set": {"objective": "triplet-hs"}},
        {"label": "two"},
        {"label": "three", "set": {"select": "t2i_r3x", "first_objective": "goal(tau=-1)"}},
    ]
    with pytest.raises(InputError) as refused:
        plan_from_dict({"rows": rows}, "mine.yaml")
    lines = str(refused.value).splitlines()
    assert [line.split(": ")[1:3] for line in lines] == [
        ["row 'one'", "objective"],
        ["row 'three'", "first_objective"],
        ["row 'three'", "select"],
    ]


def test_a_recipe_is_read_without_what_declares_its_names(tmp_path: Path) -> None:
    """One of a finished run, by somebody who has not the file of its objective."""
    Recipe(objective="somebodys(power=3)").save(tmp_path / "recipe.yaml")
    assert read_recipe(tmp_path / "recipe.yaml").objective == "somebodys(power=3)"
