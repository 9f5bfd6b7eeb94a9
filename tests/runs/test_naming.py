"""Short names from what differs in a study; no two the same."""

from typing import Any

import pytest

from simgrad.runs.naming import apart, brief, label_of
from simgrad.studies.plan import plan_from_dict


def made(grid: dict[str, list[Any]]) -> list[tuple[str, str]]:
    return [(row.name, row.label) for row in plan_from_dict({"grid": grid}, "test").rows]


def test_names_say_what_differs_and_no_more() -> None:
    objectives = ["triplet", "goal(triplet=con, pair=sig)", "goal(triplet=cir, pair=sig-ms)"]
    model = "vse++(dimension=256, word_dimension=128)"
    names, labels = zip(*made({"model": [model], "objective": objectives}), strict=True)
    assert names == ("triplet", "goal-con-sig", "goal-cir-sig-ms")
    assert labels == ("triplet", "goal (con, sig)", "goal (cir, sig-ms)")


def test_what_models_share_is_left_out() -> None:
    models = ["vse++(dimension=64, word_dimension=8)", "vse++(dimension=32, word_dimension=8)"]
    names, labels = zip(*made({"model": models, "lr": [1e-3, 2e-4]}), strict=True)
    assert names[0] == "vse++-dimension=64-lr=0.001"
    assert labels[3] == "vse++(dimension=32) lr=0.0002"
    assert len(set(names)) == 4


@pytest.mark.parametrize(
    ("grid", "names"),
    [
        ({"objective": ["triplet"]}, ["triplet"]),
        ({"positives": ["images", "pairs"]}, ["images", "pairs"]),
        ({"drop_last": [True, False]}, ["drop-last=true", "drop-last=false"]),
        ({"objective": ["nt-xent(tau=0.1)", "nt-xent"]}, ["nt-xent-tau=0.1", "nt-xent"]),
        ({"data": ["here/coco", "there/f30k"]}, ["coco", "f30k"]),
    ],
)
def test_names(grid: dict[str, list[Any]], names: list[str]) -> None:
    assert [name for name, _ in made(grid)] == names


def test_rows_that_would_share_a_folder_get_numbers() -> None:
    rows = [{"label": "a b"}, {"label": "a-b"}, {"label": "c", "name": "own"}]
    plan = plan_from_dict({"rows": rows}, "test")
    assert [row.name for row in plan.rows] == ["a-b", "a-b-2", "own"]
    assert apart(["a", "a", "a-2", "a"]) == ["a", "a-2", "a-2-2", "a-3"]


def test_an_objective_has_one_label_which_says_all_that_was_chosen() -> None:
    assert label_of("triplet-sh") == "triplet-sh"
    assert label_of("nt-xent(tau=0.05)") == "nt-xent(tau=0.05)"
    assert label_of("goal(triplet=cir, pair=sig-ms)") == "goal (cir, sig-ms)"
    assert label_of("goal(triplet=con, pair=sig, lambda=0.4)") == "goal (con, sig, lambda=0.4)"
    assert label_of("no spec (") == "no spec ("


def test_a_run_alone() -> None:
    assert brief("objective", "goal(triplet=con, pair=sig, margin=0.3)") == "goal-con-sig"
    assert brief("model", "vse++(dimension=256, word_dimension=128)") == "vse++"
    assert brief("data", "photos/mine.csv") == "mine.csv"
    assert brief("data", "scenes(train=60)") == "scenes"


def test_a_baseline_is_named_by_its_label() -> None:
    rows = [{"label": name, "set": {"objective": name}} for name in ("triplet", "nt-xent")]
    recipe = {"data": "scenes(features=global)"}
    plan = plan_from_dict({"recipe": recipe, "rows": rows, "baseline": "nt-xent"}, "plan")
    assert [row.baseline for row in plan.rows] == [False, True]
