"""What the rows of a study are fed: features, regions or pictures, as their models read them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from simgrad.core.errors import InputError
from simgrad.data.opening import embedded
from simgrad.models import models
from simgrad.studies.plan import Plan, plan_from_dict, read_plan
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row
from simgrad.studies.worker import work
from simgrad.training import Run

RECIPES = Path(__file__).parents[2] / "recipes"
WSL = "timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k"

# model -> what it is fed on data with pictures, and on the embedded world without downloads
READS = {
    "vse++": ("global", "global"),
    "vse++(backbone=resnet152)": ("global", "global"),
    "vse++(backbone=resnet152, finetune=true)": ("pixels", "global"),
    "vse++(backbone=random:vgg19, finetune=true)": ("pixels", "pixels"),
    "vsrn": ("regions", "regions"),
    "vsrn(text=bert)": ("regions", "regions"),
    "scan(direction=i-t)": ("regions", "regions"),
    "bfan": ("regions", "regions"),
    "vse-infinity": ("regions", "regions"),
    f"vse-infinity(backbone={WSL})": ("pixels", "regions"),
    "vse-infinity(backbone=vgg19, weights=random)": ("pixels", "pixels"),
    "x-vlm": ("pixels", "pixels"),
    "clip": ("pixels", "pixels"),
}


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No weights but those of installed packages."""
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def plan(*specs: str, **recipe: Any) -> Plan:
    rows = [{"label": spec, "set": {"model": spec}} for spec in specs]
    return plan_from_dict({"recipe": recipe, "rows": rows}, "test")


def fed(changed: Plan, row: Row) -> tuple[str, str | None]:
    recipe = changed.recipe(row, 0)
    return recipe.data, recipe.features


@pytest.mark.parametrize("spec", READS)
def test_a_row_gets_what_its_model_reads(spec: str, tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    grid.mkdir()
    (grid / "features.json").write_text("{}")
    changed = plan(spec).on_data("photos", "vectors", str(grid))
    features = {"global": "vectors", "regions": str(grid), "pixels": None}
    assert fed(changed, changed.rows[0]) == ("photos", features[READS[spec][0]])


def test_regions_may_be_a_data_set_of_their_own() -> None:
    changed = plan("scan").on_data("photos", "vectors", "precomp")
    assert fed(changed, changed.rows[0]) == ("precomp", None)


@pytest.mark.parametrize("spec", READS)
def test_the_embedded_world_needs_no_download(spec: str) -> None:
    changed = plan(spec).on_embedded(train=50)
    data, features = fed(changed, changed.rows[0])
    assert data == embedded(READS[spec][1], train=50)
    assert features is None
    config = changed.model(changed.rows[0])
    assert config == config.without_downloads()
    assert getattr(config, "source", None) is None
    assert config.tokenizer_needs.network is None


def test_what_is_on_this_machine_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    folder.mkdir()
    weights = tmp_path / "resnet.pth"
    weights.touch()
    for spec in (
        f"vse-infinity(bert={folder}, backbone=resnet152, weights={weights})",
        f"vse++(backbone=resnet152, weights={weights}, finetune=true)",
        f"x-vlm(swin={folder}, bert={folder})",
        f"clip(source={folder})",
    ):
        assert str(models.parse(spec).without_downloads()) == str(models.parse(spec))


def test_wsl_rows_of_goal_s_table_5_get_pictures() -> None:
    made = read_plan(RECIPES / "goal-table5.yaml").on_data("photos", None, "precomp")
    for row in made.rows:
        wanted = ("photos", None) if "WSL" in row.label else ("precomp", None)
        assert fed(made, row) == wanted, row.label


def test_such_rows_train_on_the_embedded_world(tmp_path: Path) -> None:
    """Fine-tuning, a raw network, X-VLM and CLIP, as published tables name them."""
    wanted = plan(
        "vse++(backbone=resnet152, finetune=true)",
        f"vse-infinity(backbone={WSL})",
        "x-vlm",
        "clip",
        epochs=10,
        finetune_epochs=1,
        augment="vse++",
        device="cpu",
        batch=64,
        workers=0,
    )
    small = wanted.fast().on_embedded(train=6, val=3, test=3)
    study = Study.create(dataclasses.replace(small, seeds=(0,)), tmp_path / "study")
    assert work(study, log=print) == 0
    assert all(Run(path).finished for path, _ in study.jobs())


def test_a_transform_that_is_not_there_is_said_before_anything_runs() -> None:
    with pytest.raises(InputError, match="no transform 'vsepp'"):
        plan("clip", augment="vsepp")
