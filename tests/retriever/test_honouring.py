"""A setting that a model cannot honour is refused, never ignored."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.vocabulary import Vocabulary
from simgrad.models import Inputs, build, save
from simgrad.retriever.prepare import prepare
from simgrad.runs.recipe import Recipe
from tests.models.tiny import clip_folder, siglip2_folder

FEATURES = "scenes(train=8, val=4, test=4, features=global)"
PICTURES = "scenes(train=8, val=4, test=4)"
WORDS = Vocabulary.build(["a dog"], min_count=1)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: Any) -> Path:
    return clip_folder(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    """Of a narrow VSE++."""
    folder = tmp_path_factory.mktemp("checkpoint") / "best"
    inputs = Inputs.of("features", (64,), WORDS)
    save(folder, build("vse++(dimension=8, word_dimension=8)", inputs), WORDS)
    return folder


def refused(words: str, dataset: Any = None, **fields: Any) -> None:
    with pytest.raises(InputError, match=words):
        prepare(Recipe(device="cpu", workers=0, **fields), dataset)


def test_a_checkpoint_of_another_model(checkpoint: Path) -> None:
    start = {"data": FEATURES, "start_from": str(checkpoint)}
    refused(r"holds 'vse\+\+\(dimension=8.*give `model=", model="vsrn", **start)
    refused(r"dimension=16.*cannot follow", model="vse++(dimension=16)", **start)
    refused("brings the words", model="vse++(dimension=8)", vocabulary="words.json", **start)
    for same in ("vse++", "vse++(dimension=8)", "vse++(dimension=8, word_dimension=8)"):
        begun = prepare(Recipe(device="cpu", workers=0, model=same, **start))
        assert begun.model.config.dimension == 8


@pytest.mark.parametrize(
    ("setting", "value"),
    [("family", "siglip"), ("dimension", 64), ("width", 64), ("layers", 2), ("heads", 2),
     ("patch", 16), ("positions", 20), ("size", 64)],
)  # fmt: skip
def test_a_pretrained_network_has_its_own_sizes(clip: Path, setting: str, value: Any) -> None:
    refused(f"{setting} is of an untrained", data=PICTURES,
            model=f"clip(source={clip}, {setting}={value})")  # fmt: skip


def test_siglip_has_no_size_of_its_joint_space() -> None:
    model = "clip(source=none, family=siglip, width=16, heads=2, layers=1, dimension=8)"
    refused("dimension is of family=clip", data=PICTURES, model=model)


@pytest.mark.parametrize("setting", ["tower_lr=0.5", "layer_decay=0.5", "checkpointing=true"])
def test_nothing_is_tuned_of_towers_that_are_locked(setting: str) -> None:
    refused(
        "both are locked", data=PICTURES, model=f"towers(text=none, train_text=none, {setting})"
    )


@pytest.mark.parametrize("setting", ["width=64", "layers=2"])
def test_a_pretrained_text_network_has_its_own_sizes(setting: str) -> None:
    refused("untrained text network", data=PICTURES, model=f"towers({setting})")


def test_pictures_are_trained_on_where_there_are_any() -> None:
    both = open_dataset(FEATURES)
    blind = {n: dataclasses.replace(s, pictures=None) for n, s in both.splits.items()}
    features = dataclasses.replace(both, splits=blind)
    random = "backbone=random:efficientnet-lite0, finetune=true"
    refused("trains an image network", features, model=f"vse++({random})")
    refused("needs pictures", features, model="towers(text=none, train_image=full)")
    refused("augment: vse.*varies pictures", features, augment="vse++")


def test_patches_are_not_varied(tmp_path: Path) -> None:
    model = f"clip(source={siglip2_folder(tmp_path)})"
    refused("leave `augment` out", data=PICTURES, model=model, augment="vse++")


def test_a_pretrained_network_has_its_own_words(clip: Path, tmp_path: Path) -> None:
    model = f"clip(source={clip})"
    refused("its own tokenizer", data=PICTURES, model=model, vocabulary=os.fspath(tmp_path))


def test_what_needs_a_beginning_or_a_second_scorer(clip: Path) -> None:
    refused("epochs: 0 is for", data=FEATURES, epochs=0)
    refused("wise: 3 is for", data=FEATURES, wise=3)
    refused("no second scorer", data=PICTURES, model=f"clip(source={clip})", rerank=5)
    refused("no second scorer", data=FEATURES, rerank=5)
