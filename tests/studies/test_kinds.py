"""One short run of each kind of row of the papers' tables, from a tree to the published row beside.

Everything but the number of training images is as in Flickr30k and COCO; models are tiny, and
stand-ins take the place of pretrained networks.
"""

from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.features import features
from simgrad.models import load
from simgrad.studies.study import Study
from simgrad.studies.table import build_table
from tests import standins
from tests.studies.world import World, run_short

pytestmark = pytest.mark.slow
SHORT: dict[str, Any] = {"seeds": (0,), "batch": 50}


def check(study: Study, *labels: str) -> None:
    """Tested on all of Flickr30k's test images, with published numbers beside the named rows."""
    table = build_table(study)
    assert "protocol flickr30k-1k" in table.head
    assert [row.label for row in table.rows if row.published] == list(labels)
    for row in table.rows:
        assert row.cells["rsum"].mean >= 0
        assert row.beside == "published"
        for run in study.groups[row.label]:
            assert (len(run.ranks().i2t), len(run.ranks().t2i)) == (1_000, 5_000)


def test_vse_on_features(small: World, pretrained: Path, tmp_path: Path) -> None:
    made = tmp_path / "features"
    data = small.root / "f30k" / "dataset_flickr30k.json"
    features(str(data), backbone="vit-b16", output=made, device="cpu", workers=1)
    label = "VSE++ triplet-sh"
    folder = tmp_path / "s"
    study = run_short(small, "bleeker-table1", "f30k", folder, label, features=str(made), **SHORT)
    check(study, label)
    assert load(study.runs[0].path / "best").model.inputs.images == "features"


def test_vse_with_several_captions_of_an_image(small: World, tmp_path: Path) -> None:
    label = "VSRN smooth-ap"
    study = run_short(small, "bleeker-table1", "f30k", tmp_path / "s", label, seeds=(0,), batch=20)
    check(study, label)


def test_vse_on_pictures_that_are_cropped_then_fine_tuned(
    small: World, pretrained: Path, tmp_path: Path
) -> None:
    label = "VSE++ vit-b16 fine-tuned T=cir P=sig-ms"
    study = run_short(
        small, "goal-appendix2", "f30k", tmp_path / "s", label, finetune_epochs=1, **SHORT
    )
    check(study, label)
    run = study.runs[0]
    assert run.recipe.augment == "vse++"
    assert run.info["steps"] == 2 * 4  # 200 captions, twice


def test_vse_infinity_on_regions(small: World, pretrained: Path, tmp_path: Path) -> None:
    label = "VSE-infinity BUTD T=cir P=sig-ms"
    study = run_short(
        small, "goal-appendix3", "f30k", tmp_path / "s", label, **{**SHORT, "epochs": 2}
    )
    check(study, label)


def test_vse_infinity_on_pictures(small: World, pretrained: Path, tmp_path: Path) -> None:
    label = "VSE-infinity WSL triplet-sh"
    tiny = {"size": 32, "cells": 2}
    study = run_short(
        small, "goal-table6", "f30k", tmp_path / "s", label, model=tiny, **{**SHORT, "epochs": 2}
    )
    check(study, label)


@pytest.mark.parametrize("label", ["BFAN equal online", "SCAN t-i online", "SCAN i-t online"])
def test_models_that_compare_every_pair(small: World, tmp_path: Path, label: str) -> None:
    study = run_short(small, "aoq-main-f30k", "f30k", tmp_path / "s", label, **SHORT)
    check(study)  # published numbers stand beside the average of two: test_trees.py


@pytest.mark.parametrize("label", ["VSRN off-tri", "VSRN adap-off-quin"])
def test_a_second_round_with_mined_negatives(small: World, tmp_path: Path, label: str) -> None:
    study = run_short(small, "aoq-main-f30k", "f30k", tmp_path / "s", label, **SHORT)
    check(study)
    run = study.runs[0]
    assert run.recipe.objective == label.split()[-1]
    assert run.recipe.candidates is not None
    assert Path(run.recipe.candidates).is_dir()


def test_x_vlm_from_an_imported_checkpoint_ranked_again(small: World, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    for part in ("f30k", "f30k_precomp", "vocab"):
        (root / part).symlink_to(small.root / part)
    standins.xvlm(root)
    small = World(root)  # the other tree goes on without
    labels = ("X-VLM nt-xent", "X-VLM goal")
    study = run_short(small, "goal-table6", "f30k", tmp_path / "s", *labels, rerank=3, **SHORT)
    check(study, *labels)
    started = load(small.root / "weights" / "x-vlm-4m").model
    for run in study.runs:
        assert run.recipe.start_from == str(small.root / "weights" / "x-vlm-4m")
        assert run.recipe.rerank == 3
        assert load(run.path / "best").model.config == started.config
