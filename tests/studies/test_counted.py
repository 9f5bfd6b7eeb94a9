"""Which runs may be compared with the published counts."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from simgrad.analysis.counting import CocosAccumulator
from simgrad.analysis.published import PublishedRow, published_rows
from simgrad.objectives import objective
from simgrad.retriever.counting import RunCounts
from simgrad.studies.plan import read_plan
from simgrad.studies.settings import unlike

RECIPES = Path(__file__).parents[2] / "recipes"


def counted(dataset: str, label: str, number: int) -> RunCounts:
    """A run as a table's recipe trains it."""
    plan = read_plan(RECIPES / f"bleeker-table{number}.yaml", dataset)
    row = next(row for row in plan.rows if row.label == label)
    recipe = plan.recipe(row, 0)
    rule = objective(recipe.objective)
    return RunCounts(label, rule, CocosAccumulator(), CocosAccumulator(), recipe, dataset, True)


@pytest.mark.parametrize("dataset", ["f30k", "coco"])
@pytest.mark.parametrize("model", ["VSE++", "VSRN"])
@pytest.mark.parametrize(
    ("loss", "name", "table"),
    [("Triplet", "triplet", 2), ("TripletSH", "triplet-sh", 2), ("NT-Xent", "nt-xent", 3),
     ("SmoothAP", "smooth-ap", 4)],
)  # fmt: skip
def test_a_recipes_run_is_like_one_published_row(
    dataset: str, model: str, loss: str, name: str, table: int
) -> None:
    run = counted(dataset, f"{model} {name}", table)
    like = [row for row in published_rows(loss) if not unlike(run, row)]
    assert [(row.dataset, row.method) for row in like] == [(dataset, model)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.05}, {"counted": "above 0.05 (paper 0.01)"}),
        ({"whole": False}, {"counted on": "a part (paper: the training set)"}),
        ({"dataset": None}, {"data": "other (paper f30k)"}),
        ({"batch": 64}, {"batch": "64 (paper 128)"}),
        ({"objective": "nt-xent(tau=0.06)"}, {"objective.tau": "0.06 (paper 0.1)"}),
        ({"model": "vse++(backbone=resnet152)"}, {"model.backbone": None}),
    ],
    ids=lambda x: next(iter(x)),
)
def test_what_differs_is_said(change: dict[str, Any], said: dict[str, str | None]) -> None:
    run = counted("f30k", "VSE++ nt-xent", 3)
    own = {
        field
        for field in change
        if field in RunCounts.__dataclass_fields__ and field != "objective"
    }
    recipe = run.recipe.replace(**{k: v for k, v in change.items() if k not in own})
    run = dataclasses.replace(run, recipe=recipe, **{k: change[k] for k in own})
    row: PublishedRow = published_rows("NT-Xent")[0]
    found = unlike(run, row)
    assert set(found) == set(said)
    assert all(words is None or found[field] == words for field, words in said.items())
