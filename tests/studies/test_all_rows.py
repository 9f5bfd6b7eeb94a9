"""Every row of every published table is trained in all its rounds, tested, and put on paper.

On trees with the names, layouts and test sets of Flickr30k and COCO. What is made smaller: 40 or 50
images to train on, one epoch of each kind, batches of 50, narrow models, three regions of an image
instead of 36, one seed (two where an average of two is published), three candidates that X-VLM
ranks again instead of 128 or 256, and stand-ins of a layer or two for pretrained networks.
"""

import dataclasses
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.cocos import cocos
from simgrad.cli.diagram import diagram
from simgrad.cli.study import conclude
from simgrad.data.base import Split
from simgrad.report.build import write_report
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.placing import placed, places
from simgrad.studies.plan import Plan
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row
from simgrad.studies.table import build_table
from simgrad.studies.worker import work
from tests import standins, trees
from tests.studies.test_settings import CASES
from tests.studies.test_trees import BESIDE, expected
from tests.studies.world import World, narrow

pytestmark = pytest.mark.slow
ROUND_ONE = [(path, name, True) for path, name in CASES if path.stem.startswith("aoq")]
WAYS = [(path, name, False) for path, name in CASES] + ROUND_ONE
_BATCH = 50
IMAGES = {"f30k": 40, "coco": 50}  # to train on


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        standins.put_tiny(tmp_path_factory.mktemp("cache"), patch)
        yield


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("tree")
    trees.flickr30k(root, train=IMAGES["f30k"], val=20, pictures=40 + 20 + 1_000, regions=3)
    trees.coco(root, train=30, restval=20, val=20, regions=3)
    trees.vocabularies(root)
    standins.xvlm(root)
    return World(root)


def shortened(plan: Plan, from_round_one: bool) -> Plan:
    """The plan with everything as it is but what costs time."""
    if from_round_one:  # one row of each model
        rows = [row for row in plan.rows if plan.recipe(row, 0).second_round is not None]
        first = {row.group: row for row in reversed(rows)}
        plan = dataclasses.replace(plan, rows=tuple(first.values()))
    averages = any(row.ensemble for row in plan.rows)
    plan = dataclasses.replace(plan, seeds=(0, 1) if averages else (0,))
    plan = narrow(plan, {}, device="cpu", workers=0, batch=_BATCH)

    def shorter(row: Row) -> Row:
        if row.ensemble:
            return row
        recipe, config = plan.recipe(row, 0), plan.model(row)
        # The row's own objective and its unfrozen network come after the first epochs.
        first = max(recipe.first_epochs, recipe.freeze_epochs)
        changes: dict[str, Any] = {"epochs": 1 + first}
        changes["finetune_epochs"] = min(1, recipe.finetune_epochs)
        if recipe.batch == 192:
            changes["batch"] = _BATCH * 192 // 128
        if recipe.sampler == "images":
            changes["batch"] = _BATCH // 5
        if recipe.rerank is not None:
            changes["rerank"] = 3
        if (
            recipe.start_from is None
            and getattr(config, "backbone", None)
            and "cells" in vars(config)
        ):
            changes["model"] = str(dataclasses.replace(config, size=32, cells=2))  # type: ignore[call-arg]
        if recipe.second_round is not None:
            changes["second_round"] = {**recipe.second_round, "from_round_one": from_round_one}
        return row.with_changes(**changes)

    return dataclasses.replace(plan, rows=tuple(map(shorter, plan.rows)))


def steps_of(recipe: Recipe, train: Split) -> int:
    """Updates of one round, over pairs or over images with five captions each."""
    many = train.num_images if recipe.sampler == "images" else train.num_captions
    each = many // recipe.batch if recipe.drop_last else math.ceil(many / recipe.batch)
    return each * (recipe.epochs + recipe.finetune_epochs)


def check_run(run: Run, train: Split, sizes: tuple[int, int, int]) -> int:
    """Steps of one run; both rounds where it has two."""
    assert run.finished, run.path
    taken = run.info["steps"]
    assert taken == steps_of(run.recipe, train), run.path
    assert all(math.isfinite(entry["loss"]) for entry in run.history), run.path
    asked = run.info["tested"]
    assert (asked["images"], asked["captions"], asked["folds"]) == sizes
    assert (len(run.ranks().i2t), len(run.ranks().t2i)) == sizes[:2]
    return int(taken)


@pytest.mark.parametrize(("path", "name", "on"), WAYS, ids=lambda x: getattr(x, "stem", str(x)))
def test_every_row(
    tree: World, small: World, tiny: None, tmp_path: Path, path: Path, name: str, on: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    begun = time.monotonic()
    (place,) = places((name,), str(tree.root), only=name)
    study = Study.create(shortened(placed(path, place), on), tmp_path / "s")
    assert work(study) == 0
    conclude(study, "cpu")
    steps = rounds = 0
    groups = study.groups
    for row in study.plan.rows:
        runs = groups[row.label]
        assert runs, row.label
        for run in () if row.ensemble else runs:
            train = tree.dataset(run.recipe.data).splits["train"]
            assert train.num_images == IMAGES[name]
            steps += check_run(run, train, expected(path.stem, name))
            rounds += 1
            if study.plan.recipe(row, 0).second_round is not None:
                check_second(run, on)
    if on:
        return
    check_table(study, path.stem)
    figures(study, path.stem, name, capsys)
    print(
        f"\n{path.stem} {name}: {len(study.plan.rows)} rows, {rounds} runs, {steps} steps, "
        f"{time.monotonic() - begun:.0f} s"
    )


def check_second(run: Run, from_round_one: bool) -> None:
    """A second round had a first one, and began with its weights or without."""
    assert run.recipe.candidates is not None
    first = Run.open(Path(run.recipe.candidates).parent)
    assert first.finished
    assert first.info["steps"] > 0
    assert run.recipe.start_from == (str(first.path / "best") if from_round_one else None)


def check_table(study: Study, stem: str) -> None:
    table = build_table(study)
    assert [row.label for row in table.rows] == [row.label for row in study.plan.rows]
    assert sum(bool(row.published) for row in table.rows) == BESIDE[stem]
    for row in table.rows:
        assert row.beside == "published" or not row.published
        assert all(math.isfinite(row.cells[metric].mean) for metric in table.metrics), row.label


def figures(study: Study, stem: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The report of all rows, and what the paper draws or counts."""
    report = write_report([study.path], study.path / "report.html", batches=1, pictures=False)
    told = report.read_text(encoding="utf-8")
    assert all(row.label in told for row in study.plan.rows)
    if stem.startswith("aoq-main"):
        diagram(kind="cross-ranks", study=study.path, rows=("VSRN average", "BFAN average"))
        assert len(list((study.path / "figures").glob("cross-ranks*"))) == 1
    if stem.startswith("goal"):
        diagram(study=study.path)
        drawn = list((study.path / "figures").glob("triplets-*"))
        assert len(drawn) == len(study.plan.rows)
    if stem.startswith("bleeker-table") and stem != "bleeker-table1":
        capsys.readouterr()
        runs = tuple(str(run.path) for run in study.runs)
        cocos(runs, epsilon=(0.001, 0.01, 0.1), device="cpu")
        told = capsys.readouterr().out
        assert all(run.path.name in told for run in study.runs)
        assert "by epsilon" in told
