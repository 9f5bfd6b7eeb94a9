"""Study files of results/ tried on made-up data: opened, dry-run and trained for a few steps."""

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from simgrad.cli.dry_run import dry_run
from simgrad.cli.study import conclude
from simgrad.studies.plan import Plan
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row
from simgrad.studies.tune import Tune
from simgrad.studies.worker import work
from tests.studies.world import narrow

RESULTS = Path(__file__).parents[2] / "results"
_SIZES = "train=40, val=8, test=8"


def script(folder: str, name: str) -> ModuleType:
    """A script of results/, imported."""
    place = RESULTS / folder
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", place / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        spec.loader.exec_module(module)
    return module


def resnet(folder: Path) -> None:
    """A tiny ResNet as a folder of transformers."""
    from transformers import BitImageProcessor, ResNetConfig, ResNetModel

    ResNetModel(
        ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic")
    ).save_pretrained(folder)
    crop = {"height": 32, "width": 32}
    BitImageProcessor(size={"shortest_edge": 32}, crop_size=crop).save_pretrained(folder)


def rehearsed(plan: Plan, seeds: int = 2, resplit: str | None = "new(test=8, val=8)") -> Plan:
    """Everything as it is but what costs time: the photos, the width, the epochs, the trials."""
    plan = narrow(plan, {}, device="cpu", workers=0, batch=32, min_count=1)

    def shorter(row: Row) -> Row:
        if row.ensemble:
            return row
        recipe = plan.recipe(row, 0)
        reads = plan.model(row).reads
        changes: dict[str, Any] = {
            "data": f"scenes({_SIZES}, features={reads}, size=32)",
            "epochs": 1 + recipe.first_epochs,
            "finetune_epochs": min(1, recipe.finetune_epochs),
            "resplit": resplit if recipe.resplit else None,
            "precision": "float32",
        }
        if recipe.sampler == "images":
            changes["batch"] = 8
        if "towers" in recipe.model:
            changes["model"] = "towers(train_text=full, text=none, dimension=8, width=8, layers=1)"
        return row.with_changes(**changes)

    tune = plan.tune
    if tune is not None:
        values = {**tune.to_dict(), "trials": 2, "replicates": min(2, tune.replicates)}
        tune = Tune.model_validate({**values, "finalists": 1})
    rows = tuple(map(shorter, plan.rows))
    return dataclasses.replace(plan, rows=rows, seeds=plan.seeds[:seeds], tune=tune)


def train(plan: Plan, folder: Path) -> Study:
    """Opened as a user opens it, then trained and put on paper."""
    dry_run(plan)
    study = Study.create(plan, folder)
    assert work(study) == 0
    conclude(study, "cpu")
    return Study(study.path)
