"""Every recipe file is a study that could start, and has published numbers beside it."""

from pathlib import Path

import pytest

from simgrad.models import models
from simgrad.objectives import objective
from simgrad.studies.papers import published_for
from simgrad.studies.plan import read_plan

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_dry_run(path: Path) -> None:
    plan = read_plan(path)
    for made in (plan, plan.on_scenes(train=50), plan.fast()):
        names = [name for name, _, _ in made.runs()]
        assert len(set(names)) == len(names)
        for _, _, recipe in made.runs():
            objective(recipe.objective)
            models.parse(recipe.model)
            if recipe.second_round:
                assert objective(recipe.second_round["objective"]).needs_offline


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_published_rows_are_found(path: Path) -> None:
    plan = read_plan(path)
    for row in plan.rows:
        if row.published:
            assert published_for(plan.published, row), row.label
    for group in {row.group for row in plan.rows}:
        assert sum(row.baseline for row in plan.rows if row.group == group) == 1, group


def test_there_is_a_file_for_every_table() -> None:
    wanted = {f"bleeker-table{n}" for n in range(1, 5)} | {f"goal-table{n}" for n in range(2, 7)}
    wanted |= {f"goal-appendix{n}" for n in (1, 2, 3)} | {f"aoq-supplement{n}" for n in (1, 2, 3)}
    assert wanted | {"aoq-main-coco", "aoq-main-f30k"} <= {p.stem for p in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_the_head_says_how_and_what(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "simgrad study recipes/" in text.split("title:")[0]
    for word in ("Published:", "Ours:", "Time:"):
        assert word in text.split("title:")[0]
