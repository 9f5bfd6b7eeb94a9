"""Vectors of both sides as data: each kind of file, splits, pairing, and what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file

import simgrad
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.resplit import read_resplit, resplit
from simgrad.runs.recipe import Recipe
from simgrad.training import train

Arrays = dict[str, Any]


def pairs(count: int = 60, per: int = 2) -> Arrays:
    """Two views of the same thing, `per` texts for each image."""
    random = np.random.default_rng(5)
    meaning = random.standard_normal((count, 6))
    owner = np.repeat(np.arange(count), per)
    texts = meaning[owner] + 0.1 * random.standard_normal((count * per, 6))
    turn = np.linalg.qr(random.standard_normal((6, 6)))[0]
    return {
        "images": meaning.astype(np.float32),
        "texts": (texts @ turn).astype(np.float32),
        "image_of_caption": owner,
        "split": np.array((["train"] * 8 + ["val", "test"]) * (count // 10)),
    }


def write(kind: str, folder: Path, arrays: Arrays) -> Path:
    """The same pairs in one of the ways that people keep them."""
    folder.mkdir(exist_ok=True)
    if kind == "npz":
        np.savez(folder / "pairs.npz", **arrays)
        return folder / "pairs.npz"
    if kind == "npy":
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        return folder
    owner, label = arrays["image_of_caption"], arrays["split"]
    rows = {
        "image_id": [f"image {i}" for i in owner],
        "images": list(arrays["images"][owner]),
        "texts": list(arrays["texts"]),
        "split": list(label[owner]),
    }
    places = {name: np.flatnonzero(label[owner] == name) for name in ("train", "val", "test")}
    if kind == "splits":
        for name, at in places.items():
            table = {k: [v[i] for i in at] for k, v in rows.items() if k != "split"}
            parquet.write_table(arrow.table(table), folder / f"{name}.parquet")
    elif kind == "safetensors":
        for name in places:
            images = np.flatnonzero(label == name)
            texts = np.flatnonzero(label[owner] == name)
            tensors = {"images": arrays["images"][images], "texts": arrays["texts"][texts]}
            save_file({k: torch.from_numpy(v) for k, v in tensors.items()},
                      folder / f"{name}.safetensors")  # fmt: skip
    else:
        datasets = pytest.importorskip("datasets")
        parts = {
            name: datasets.Dataset.from_dict(
                {k: [v[i] for i in at] for k, v in rows.items() if k != "split"}
            )
            for name, at in places.items()
        }
        datasets.DatasetDict(parts).save_to_disk(str(folder))
    return folder


@pytest.mark.parametrize("kind", ["npz", "npy", "splits", "safetensors", "huggingface"])
def test_every_way_to_keep_them_gives_the_same_pairs(tmp_path: Path, kind: str) -> None:
    arrays = pairs()
    dataset = open_dataset(write(kind, tmp_path / kind, arrays))
    assert dataset.layout == "embeddings"
    assert [split.num_images for split in dataset.splits.values()] == [48, 6, 6]
    for name, split in dataset.splits.items():
        own = np.flatnonzero(arrays["split"] == name)
        assert split.features is not None
        assert split.caption_vectors is not None
        images = split.features.rows(np.arange(split.num_images))
        assert np.array_equal(images, arrays["images"][own])
        for place, image in enumerate(own):
            wanted = arrays["texts"][arrays["image_of_caption"] == image]
            found = split.caption_vectors.rows(split.captions_of(place))
            assert np.array_equal(found, wanted)
    assert "caption vectors 6" in dataset.split("train").summary()


def test_without_splits_they_are_drawn_and_without_a_pairing_texts_stand_together(
    tmp_path: Path,
) -> None:
    arrays = pairs()
    file = tmp_path / "pairs.npz"
    np.savez(file, queries=arrays["images"], documents=arrays["texts"])
    dataset = open_dataset(file)
    assert sum(split.num_images for split in dataset.splits.values()) == 60
    assert "80/10/10" in dataset.notes[0]
    train = dataset.split("train")
    assert train.captions_per_image.tolist() == [2] * train.num_images


def test_other_vectors_are_other_data_and_other_splits_keep_pairs(tmp_path: Path) -> None:
    arrays = pairs()
    first = open_dataset(write("npz", tmp_path / "a", arrays))
    turned = {**arrays, "texts": arrays["texts"][::-1].copy()}
    other = open_dataset(write("npz", tmp_path / "b", turned))
    assert first.fingerprint() != other.fingerprint()
    drawn = resplit(first, read_resplit("new(draw=2)")).split("test")
    assert drawn.features is not None
    assert drawn.caption_vectors is not None
    for row, name in enumerate(drawn.image_names):
        image = int(name.rsplit("-", 1)[1])
        wanted = arrays["texts"][arrays["image_of_caption"] == image]
        assert np.array_equal(drawn.caption_vectors.rows(drawn.captions_of(row)), wanted)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"splits": 3}', '{"splits": [1]}', "\x00"])
def test_damaged_words_about_splits_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text(text)
    with pytest.raises(InputError, match=r"dataset_dict\.json"):
        open_dataset(f"embeddings(path={tmp_path})")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"texts": np.zeros((7, 6), np.float32), "image_of_caption": None}, "which text belongs"),
        ({"image_of_caption": np.zeros(120)}, "whole number for each of 120 texts"),
        ({"images": np.zeros((60, 2, 3), np.float32)}, "'images' should hold vectors"),
        ({"split": np.array(["train"] * 5)}, "5 splits for 60 images"),
        ({"image_of_caption": np.full(120, 60)}, "outside its 60 images"),
        ({"image_ids": np.array(["a", "b"])}, "2 image ids for 60 vectors"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, change: Arrays, said: str) -> None:
    arrays = {k: v for k, v in {**pairs(), **change}.items() if v is not None}
    np.savez(tmp_path / "pairs.npz", **arrays)
    with pytest.raises(InputError, match=said):
        open_dataset(tmp_path / "pairs.npz")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    data = write("npz", folder / "data", pairs(400))
    recipe = Recipe(
        data=str(data), model="light(text=vectors, dimension=8)", epochs=8, lr=1e-2, batch=64
    )
    train(recipe, folder / "run", quiet=True)
    return folder / "run"


def test_heads_learn_what_turns_one_side_into_the_other(run: Path) -> None:
    as_given = simgrad.open(run.parent / "data" / "pairs.npz").evaluate().rsum
    assert simgrad.open(run).evaluate("test").rsum > 450 > as_given


def test_vectors_of_one_network_begin_as_alike_as_they_are(run: Path) -> None:
    config = simgrad.models.models.parse("light(text=vectors, dimension=8)")
    inputs = simgrad.models.Inputs("features", (6,), 1, caption_dimension=6)
    model = simgrad.models.build(config, inputs).eval()
    x, y = torch.randn(5, 6), torch.randn(4, 6)
    found = model(x, y, torch.ones(4))
    assert torch.allclose(found, torch.nn.functional.cosine_similarity(x[:, None], y[None], dim=2),
                          atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("format", ["heads", "onnx"])
def test_exported_heads_give_the_models_similarities(
    run: Path, tmp_path: Path, format: str
) -> None:
    opened = simgrad.open(run)
    split = opened.split("test")
    images, texts = opened.encode_split(split)
    assert split.features is not None
    assert split.caption_vectors is not None
    x = split.features.rows(np.arange(split.num_images))
    y = split.caption_vectors.rows(np.arange(split.num_captions))
    opened.export(tmp_path / "out", format)
    if format == "heads":
        from safetensors.numpy import load_file

        heads = load_file(tmp_path / "out" / "heads.safetensors")
        found = [_unit(_unit(side) @ heads[name]) for side, name in ((x, "images"), (y, "texts"))]
    else:
        onnxruntime = pytest.importorskip("onnxruntime")
        found = []
        for side, file, name in ((x, "image", "images"), (y, "captions", "captions")):
            session = onnxruntime.InferenceSession(tmp_path / "out" / f"{file}.onnx")
            found.append(session.run(None, {name: side})[0])
    for ours, theirs in ((images, found[0]), (texts, found[1])):
        assert ours.vectors is not None
        assert np.allclose(ours.vectors.numpy(), theirs, atol=1e-5)


def _unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_sentences_and_data_without_vectors_are_refused_in_words(run: Path) -> None:
    with pytest.raises(InputError, match="reads vectors, not sentences"):
        simgrad.open(run).search("a dog")
    other = simgrad.open(run).with_model(simgrad.open(run).model)
    plain = dataclasses.replace(other.split("test"), caption_vectors=None)
    with pytest.raises(InputError, match="caption vectors of 6 numbers, but the data have none"):
        other.evaluate(plain)
    data = "scenes(train=10, val=5, test=5, features=global)"
    recipe = Recipe(data=data, model="light(text=vectors)", epochs=1)
    with pytest.raises(InputError, match="text=vectors reads caption vectors"):
        train(recipe, run.parent / "refused", quiet=True)


def test_a_folder_of_vectors_is_evaluated_and_mined_by_its_split(tmp_path: Path) -> None:
    opened = simgrad.open(write("splits", tmp_path / "v", {**pairs(), "texts": _same()}))
    assert opened.evaluate("val").rsum == 600
    found = opened.mine(depth=3, split="train")
    assert found.i2t.shape == (48, 3)


def _same() -> Any:
    arrays = pairs()
    return arrays["images"][arrays["image_of_caption"]]
