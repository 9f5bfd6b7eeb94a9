"""Every recipe file is a study that could start, and has published numbers beside it."""

import math
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from simgrad.data import Sampler
from simgrad.models import models
from simgrad.objectives import objective, objectives
from simgrad.retriever.prepare import prepare
from simgrad.runs.recipe import Recipe
from simgrad.studies.papers import beside
from simgrad.studies.plan import read_plan
from simgrad.studies.study_file import Row
from simgrad.training.loop import Step
from simgrad.training.optimizing import moment, total_epochs

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    """The objective that flickr8k-negatives is given by `--with`."""
    runpy.run_path(str(RECIPES[0].parent / "top_k.py"))
    yield
    del objectives._declared["triplet-k"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_dry_run(path: Path) -> None:
    plan = read_plan(path)
    for made in (plan, plan.on_embedded(train=50), plan.fast()):
        names = [name for name, _, _ in made.runs()]
        assert len(set(names)) == len(names)
        for _, _, recipe in made.runs():
            objective(recipe.objective)
            models.parse(recipe.model)
            # Warming up is not all there is, in either round.
            assert recipe.first_epochs < recipe.epochs or not recipe.epochs
            if recipe.second_round:
                offline = objective(recipe.second_round["objective"]).needs_offline
                assert offline or recipe.second_round.get("from_round_one")
                both = {"first_epochs": recipe.first_epochs, "epochs": recipe.epochs}
                both |= recipe.second_round
                assert both["first_epochs"] < both["epochs"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_published_rows_are_found(path: Path) -> None:
    plan = read_plan(path)
    for row in plan.rows:
        if row.published:
            assert beside(plan.published, row).cells, row.label
    for group in {row.group for row in plan.rows}:
        assert sum(row.baseline for row in plan.rows if row.group == group) == 1, group


def test_there_is_a_file_for_every_table() -> None:
    wanted = {f"bleeker-table{n}" for n in range(1, 5)} | {f"goal-table{n}" for n in range(2, 7)}
    wanted |= {f"goal-appendix{n}" for n in (1, 2, 3)} | {f"aoq-supplement{n}" for n in (1, 2, 3)}
    assert wanted | {"aoq-main-coco", "aoq-main-f30k"} <= {p.stem for p in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_the_head_says_how_and_what(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("title:")[0]
    assert re.search(rf"simgrad (--with recipes/\S+ )?study recipes/{path.name}", head)
    for word in ("Published:", "Ours:", "Time:"):
        assert word in head


def test_fine_tuning_reads_pictures_and_thaws_the_network_last() -> None:
    plan = read_plan(RECIPES[0].parent / "flickr8k-finetune.yaml").on_data("flickr8k")
    for row in plan.rows:
        recipe = plan.recipe(row, 0)
        assert (recipe.data, recipe.features, recipe.augment) == ("flickr8k", None, None)
        assert models.parse(recipe.model).reads == "pixels"
        epochs = range(total_epochs(recipe))
        trained = [moment(recipe, e, 0, 9).train_backbone for e in epochs]
        assert trained == [False] * recipe.epochs + [True] * recipe.finetune_epochs
        assert trained[-1]


MODELS = read_plan(RECIPES[0].parent / "flickr8k-models.yaml")


def test_every_model_has_rows() -> None:
    elsewhere = {"vse++", "light", "towers"}  # flickr8k-sizes and others, -light, -towers
    assert {MODELS.model(row).name for row in MODELS.rows} | elsewhere == {d.name for d in models}
    for group in {row.group for row in MODELS.rows}:
        specs = [str(row.changes["objective"]) for row in MODELS.rows if row.group == group]
        assert specs[:2] == ["triplet-sh", "goal(triplet=cir, pair=sig-ms, tau=10)"], group


SHORT = MODELS.on_embedded(train=12, val=2, test=2).changed(
    batch=12, device="cpu", workers=0, min_count=1
)
FIRST = {SHORT.model(row).name: row for row in reversed(SHORT.rows)}  # the first row of each model


def takes_steps(recipe: Recipe) -> None:
    """Before and after the warm-up, on a few scenes."""
    prepared = prepare(recipe)
    index = Sampler("distinct", recipe.batch).epoch(prepared.sources["train"].split, 0)[0]
    step = Step(prepared.model.train(), recipe, prepared.device)
    before = [p.detach().clone() for p in prepared.model.parameters()]
    losses = []
    for epoch in (0, 1):
        now = moment(recipe, epoch, 5, 9)
        step.optimizer.set_rates(now)
        losses.append(
            float(
                step.update(prepared.sources["train"].fetch(index), step.objectives[now.objective])
            )
        )
    assert all(math.isfinite(loss) for loss in losses)
    after = list(prepared.model.parameters())
    moved = sum(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert moved > 0.9 * len(after)


@pytest.mark.long
@pytest.mark.parametrize("row", SHORT.rows, ids=lambda row: row.label)
def test_every_row_takes_a_step(row: Row) -> None:
    """In the precision that the recipe gives."""
    takes_steps(SHORT.recipe(row, 0).replace(model=str(SHORT.model(row).narrow())))


@pytest.mark.parametrize("row", FIRST.values(), ids=FIRST)
def test_every_model_takes_a_step_in_the_size_of_its_recipe(row: Row) -> None:
    """In float32: half precision takes a CPU many times as long."""
    takes_steps(SHORT.recipe(row, 0).replace(batch=4, precision="float32"))


def test_the_published_sum_is_the_papers_own() -> None:
    """Its rounded recalls add up to 353.7."""
    plan = read_plan(next(p for p in RECIPES if p.stem == "bleeker-table1"), "f30k")
    row = next(row for row in plan.rows if row.label == "VSE++ triplet-sh")
    assert beside(plan.published, row).cells["rsum"] == (353.8, 1.6)
