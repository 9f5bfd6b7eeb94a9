"""Recipes: groups of fields, files that read back, and files with earlier names."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.models import models
from simgrad.runs.recipe import GROUPS, Recipe, from_dict, grouped, read_recipe
from simgrad.studies.plan import plan_from_dict, read_plan


def test_every_field_is_in_one_group() -> None:
    groups = grouped(Recipe.model_fields)
    assert list(groups) == list(GROUPS.values())
    assert [name for names in groups.values() for name in names] == list(Recipe.model_fields)


def test_a_saved_recipe_has_its_groups_and_reads_back(tmp_path: Path) -> None:
    recipe = Recipe(
        objective="nt-xent", lr=1e-3, found_pairs="some/pairs", second_round={"lr": 1e-4}
    )
    recipe.save(tmp_path / "recipe.yaml")
    lines = (tmp_path / "recipe.yaml").read_text().splitlines()
    assert [line[2:] for line in lines if line.startswith("# ")] == list(GROUPS.values())
    assert lines.index("# optimisation") < lines.index("lr: 0.001") < lines.index("# schedule")
    assert read_recipe(tmp_path / "recipe.yaml") == recipe


@pytest.mark.parametrize(
    ("text", "fields", "told"),
    [
        ("trial: true", {"validation_only": True}, "`trial` is `validation_only` now"),
        ("tensorboard: true", {"log": "tensorboard"}, "is `log: tensorboard` now"),
        ("tensorboard: true\nlog: wandb", {"log": "wandb,tensorboard"}, "is `log: tensorboard`"),
        (
            "positives: help/found",
            {"positives": "images", "found_pairs": "help/found"},
            "is `found_pairs` now",
        ),
    ],
)
def test_earlier_names_are_read_and_told(
    tmp_path: Path, text: str, fields: dict[str, Any], told: str
) -> None:
    (tmp_path / "old.yaml").write_text(text)
    with pytest.warns(UserWarning, match=told):
        found = read_recipe(tmp_path / "old.yaml")
    assert found == Recipe(**fields)


def test_a_study_file_says_what_its_fields_are_called_now(tmp_path: Path) -> None:
    text = "title: t\nrecipe: {tensorboard: false}\nrows:\n- {label: a, set: {positives: x/y}}\n"
    (tmp_path / "study.yaml").write_text(text)
    with (
        pytest.warns(UserWarning, match="study.yaml: `tensorboard: true` is `log: tensorboard`"),
        pytest.warns(UserWarning, match="study.yaml: row 'a': `positives` with a file"),
    ):
        plan = read_plan(tmp_path / "study.yaml")
    assert plan.recipe(plan.rows[0], 0).found_pairs == "x/y"


def test_every_model_has_a_usual_objective_and_rate() -> None:
    for known in models:
        usual = models.parse(known.name).usual
        assert simgrad.objective(usual.objective).weigh(torch.eye(3)).value.isfinite()
        assert 0 < usual.lr < 0.01


def test_what_nobody_names_is_usual_for_the_model() -> None:
    assert (Recipe().objective, Recipe().lr) == ("focused-deviance", 2e-3)
    clip = Recipe(model="clip(source=none)")
    assert (clip.objective, clip.lr) == ("nt-xent(learned=true)", 1e-5)
    named = Recipe(model="clip(source=none)", lr=1.0)
    assert (named.objective, named.lr) == ("nt-xent(learned=true)", 1.0)
    assert Recipe(model="vsrn").objective == "triplet-sh"
    assert clip.replace(model="vsrn").objective == clip.objective  # another model, the same recipe


def test_a_recipe_says_what_it_leaves_open(tmp_path: Path) -> None:
    (tmp_path / "open.yaml").write_text("model: light\nlr: 1e-3\n")
    with pytest.warns(UserWarning, match=r"`objective` is not named: .*light.*before 0.3"):
        assert read_recipe(tmp_path / "open.yaml").lr == 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = read_recipe(tmp_path / "open.yaml", objective="nt-xent")
        assert read_recipe(tmp_path / "open.yaml", model="vsrn").objective == "triplet-sh"
    assert named.objective == "nt-xent"


def test_the_usual_rate_is_not_one_for_the_hardest_negative_alone(tmp_path: Path) -> None:
    assert read_recipe(None, objective="triplet-sh").lr == 2e-4
    assert read_recipe(None, objective="goal(triplet=nca, pair=sig)").lr == 2e-4
    assert read_recipe(None, objective="triplet-sh", first_epochs=1).lr == 2e-4  # of nothing
    eased = {"first_objective": "triplet", "first_epochs": 1}
    assert read_recipe(None, objective="triplet-sh", **eased).lr == 2e-3
    assert read_recipe(None, objective="triplet").lr == 2e-3
    (tmp_path / "s.yaml").write_text("grid: {objective: [nt-xent, 'goal(triplet=con, pair=sig)']}")
    with pytest.warns(UserWarning, match=r"pair=sig\) learns from the hardest"):
        read_plan(tmp_path / "s.yaml")
    for fine in (
        {"objective": "triplet-sh", "lr": 2e-3},  # named: as somebody wants it
        {"objective": "triplet-sh", "first_objective": "triplet", "first_epochs": 1},
        {"objective": "triplet"},
        {"objective": "triplet-sh", "model": "vsrn"},
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            read_recipe(None, **fine)
        assert not any("hardest negative alone" in str(one.message) for one in told), fine


def test_rows_of_another_model_have_its_usual_rate(tmp_path: Path) -> None:
    rows = "rows:\n- {label: a, set: {model: light}}\n- {label: b, set: {model: vsrn, lr: 1e-3}}\n"
    (tmp_path / "open.yaml").write_text(rows)
    (tmp_path / "named.yaml").write_text("recipe: {objective: nt-xent, lr: 5e-4}\n" + rows)
    with pytest.warns(UserWarning, match="not named"):
        plan = read_plan(tmp_path / "open.yaml")
    light, vsrn = (plan.recipe(row, 0) for row in plan.rows)
    assert (light.objective, light.lr) == ("focused-deviance", 7e-4)
    assert (vsrn.objective, vsrn.lr) == ("triplet-sh", 1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = read_plan(tmp_path / "named.yaml")
    assert [plan.recipe(row, 0).lr for row in plan.rows] == [5e-4, 1e-3]
    assert {plan.recipe(row, 0).objective for row in plan.rows} == {"nt-xent"}


def test_a_row_that_names_the_studys_own_model_has_the_studys_rate() -> None:
    rows = [{"label": "a"}, {"label": "b", "set": {"model": "vse++"}}]
    plan = plan_from_dict({"recipe": {"objective": "triplet-sh"}, "rows": rows}, "test")
    assert [plan.recipe(row, 0).lr for row in plan.rows] == [2e-4, 2e-4]


def test_a_mistake_in_a_change_is_not_told_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{objective: nt-xent, lr: 1e-3}")
    with pytest.raises(InputError, match=r"^recipe: batch "):
        read_recipe(tmp_path / "mine.yaml", batch=0)
    (tmp_path / "mine.yaml").write_text("{objective: nt-xent, lr: 1e-3, batch: 0}")
    with pytest.raises(InputError, match=r"mine\.yaml: batch "):
        read_recipe(tmp_path / "mine.yaml", seed=1)


def test_a_run_of_before_is_read_without_a_word() -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "aef3eeb" / "run"
    assert "tensorboard" in (folder / "recipe.yaml").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simgrad.Run.open(folder).recipe.log is None


def test_who_sets_positives_drops_found_pairs_of_before() -> None:
    recipe = Recipe(found_pairs="help/found")
    assert recipe.replace(lr=1.0).found_pairs == "help/found"
    assert recipe.replace(positives="images").found_pairs is None
    assert recipe.replace(positives="pairs").found_pairs is None
    assert recipe.replace(positives="other/found").found_pairs == "other/found"


def test_fields_of_a_second_round_have_earlier_names_too() -> None:
    recipe = Recipe(second_round={"positives": "help/found", "trial": True})
    second = recipe.round_two()
    assert (second.found_pairs, second.validation_only) == ("help/found", True)
    assert recipe == Recipe(
        second_round={"positives": "images", "found_pairs": "help/found", "validation_only": True}
    )


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="positives is one of images or pairs, not 'pair'"):
        Recipe(positives="pair")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="leave `positives: pairs` out"):
        Recipe(positives="pairs", found_pairs="help/found")
    with pytest.raises(InputError, match="tensorboard is true or false"):
        Recipe(tensorboard="yes")  # type: ignore[call-arg]


@pytest.mark.parametrize("mode", ["images", "pairs"])
def test_a_folder_called_images_is_no_mode(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / mode).mkdir()
    recipe = Recipe(positives=mode)
    assert recipe.settled() == recipe


def test_how_queries_are_added_up_is_said_once() -> None:
    assert Recipe(objective="nt-xent(reduction=sum)").reduction == "published"
    for name in ("objective", "first_objective"):
        with pytest.raises(InputError, match=r"`reduction=mean` is for all .* out of the spec\."):
            Recipe(**{name: "nt-xent(tau=0.1, reduction=sum)", "reduction": "mean"})


def test_an_objective_may_be_an_object() -> None:
    made = simgrad.objective("nt-xent", tau=0.07)
    recipe = Recipe(objective=made, first_objective=made, second_round={"objective": made})
    told = (recipe.objective, recipe.first_objective, recipe.round_two().objective)
    assert told == ("nt-xent(tau=0.07)",) * 3
    assert recipe.replace(objective=simgrad.objective("triplet")).objective == "triplet"
    assert from_dict({"objective": made}, "recipe").objective == "nt-xent(tau=0.07)"


def test_objectives_of_a_study_may_be_objects(tmp_path: Path) -> None:
    made = simgrad.objective("nt-xent", tau=0.07)
    grid = {"grid": {"objective": [made, "triplet"]}, "recipe": {"model": "light"}}
    rows = {"rows": [{"label": "mine", "set": {"objective": made}}], "recipe": {"objective": made}}
    for name, plan in (("grid", grid), ("rows", rows)):
        study = simgrad.Study.create(plan, tmp_path / name)
        assert study.jobs()[0][1].objective == "nt-xent(tau=0.07)"
