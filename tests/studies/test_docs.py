"""The examples of docs/training.md are read as they stand."""

import re
from pathlib import Path

import pytest

from simgrad.runs.recipe import read_recipe
from simgrad.studies.papers import beside
from simgrad.studies.plan import read_plan

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
STUDIES = {b.split("\n")[0].removeprefix("# study: "): b for b in BLOCKS if "# study:" in b}


@pytest.mark.parametrize("name", ["grid", "rows", "published", "datasets", "tuned"])
def test_study_files(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDIES[name])
    plan = read_plan(tmp_path / "s.yaml")
    names = [row.name for row in plan.rows]
    trained = [row for row in plan.rows if not row.ensemble]
    assert len(plan.runs()) == len(trained) * len(plan.seeds)
    if name == "grid":
        assert names[:3] == ["triplet-sh-lr=0.0002", "triplet-sh-lr=0.001", "nt-xent-lr=0.0002"]
        assert sum(row.baseline for row in plan.rows) == 2
    if name == "rows":
        assert names[:2] == ["as-it-is", "warmed"]
    if name == "datasets":
        assert beside(plan.published, plan.rows[1]).cells
        assert plan.recipe(plan.rows[0], 0).decay_every == 10
        assert read_plan(tmp_path / "s.yaml", "coco").recipe(plan.rows[1], 0).protocol == "coco-1k"
    assert (plan.tune is not None) == (name == "tuned")
    if name == "published":
        assert all(beside(plan.published, row).cells for row in plan.rows)


def test_recipes(tmp_path: Path) -> None:
    recipes = [block for block in BLOCKS if "# study:" not in block]
    assert len(recipes) >= 2
    for number, block in enumerate(recipes):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block)
        assert read_recipe(path).objective
