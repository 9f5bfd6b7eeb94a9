"""Odd, but right: what must be read as meant, not refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from simgrad.core.files import read_json, write_json
from simgrad.data import Vocabulary, open_dataset
from simgrad.evaluation import evaluate
from simgrad.objectives import objective, objectives
from simgrad.runs.recipe import read_recipe
from simgrad.training import Run, train
from tests.data import layout_writers as write
from tests.hardening.bad_files import encoded, with_picture
from tests.hardening.jobs import recipe

WRONG = [
    '{"step": 1e999, "epoch": 3, "loss": 1, "val": {}}',
    '{"step": 1, "epoch": 3, "loss": 1, "val": {"rsum": []}}',
    '{"step": 1, "epoch": 3, "loss": 1, "val": {}, "attention": {"i2t": 3}}',
]
RED = (200, 30, 30)


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(Image.new("RGB", (40, 20), RED), "PNG", exif=exif)


def _animated() -> bytes:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, "blue")]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])


PICTURES: dict[str, tuple[bytes, tuple[int, int], tuple[int, int, int]]] = {
    "one pixel": (encoded(Image.new("RGB", (1, 1), RED), "PNG"), (1, 1), RED),
    "one row": (encoded(Image.new("RGB", (3000, 1), RED), "PNG"), (3000, 1), RED),
    "CMYK": (encoded(Image.new("CMYK", (8, 8)), "JPEG"), (8, 8), (255, 255, 255)),
    "animated": (_animated(), (8, 8), RED),
    "turned by EXIF": (_turned(), (20, 40), RED),
    "transparent": (encoded(Image.new("RGBA", (8, 8)), "PNG"), (8, 8), (255, 255, 255)),
    "of 16 bits": (
        encoded(Image.fromarray(np.full((8, 8), 32768, np.uint16)), "PNG"),
        (8, 8),
        (127, 127, 127),
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(name: str, tmp_path: Path) -> None:
    data, size, colour = PICTURES[name]
    picture = with_picture(tmp_path, data)
    assert (picture.mode, picture.size) == ("RGB", size)
    found = picture.getpixel((0, 0))
    assert isinstance(found, tuple)
    assert max(abs(a - b) for a, b in zip(found, colour, strict=True)) <= 2


def _karpathy(folder: Path, images: list[dict[str, Any]]) -> Any:
    (folder / "dataset_odd.json").write_text(json.dumps({"images": images}))
    return open_dataset(folder).split("train")


def test_ids_beyond_two_billion(tmp_path: Path) -> None:
    images = [
        {
            "filename": f"{k}.jpg", "split": "train", "cocoid": 2**31 + k,
            "sentences": [{"raw": f"a dog {k}", "sentid": 2**40 + k}],
        }
        for k in range(3)
    ]  # fmt: skip
    split = _karpathy(tmp_path, images)
    assert split.image_of_caption.tolist() == [0, 1, 2]
    assert [str(i) for i in split.caption_ids] == [str(2**40 + k) for k in range(3)]


def test_captions_right_to_left_of_no_width_and_with_nul(tmp_path: Path) -> None:
    texts = ["\u202egod a", "a\u200bdog", "a\0dog", "", "שלום עולם", "e\u0301te"]
    sentences = [{"raw": text} for text in texts]
    split = _karpathy(tmp_path, [{"filename": "a", "split": "train", "sentences": sentences}])
    assert list(split.captions) == texts
    vocabulary = Vocabulary.build(texts, min_count=1)
    assert all(vocabulary.encode(text) for text in texts)


def test_an_array_in_the_order_of_fortran(tmp_path: Path) -> None:
    array = write.features(4)
    np.save(write.precomp(tmp_path) / "train_ims.npy", np.asfortranarray(array))
    features = open_dataset(tmp_path).split("train").features
    assert features is not None
    assert np.array_equal(np.asarray(features.rows(np.arange(4))), array)


@pytest.mark.parametrize("name", ["triplet-sh", "nt-xent", "smooth-ap", "goal"])
def test_one_image_is_a_run(name: str, tmp_path: Path) -> None:
    data = "scenes(train=1, val=1, test=1, features=global)"
    run = train(recipe(data=data, objective=name), tmp_path / "run", quiet=True)
    assert run.finished
    assert run.test is not None
    assert run.test["rsum"] == 600  # there is nothing else to find


@pytest.mark.filterwarnings("ignore:these vectors differ")
def test_vectors_of_zeros_are_found_last() -> None:
    images = np.eye(4, dtype=np.float32)
    images[2] = 0
    found = evaluate(images, np.eye(4, dtype=np.float32), np.arange(4), normalise=True)
    assert found.t2i_r1 == 75.0
    nothing = np.zeros((4, 4), np.float32)
    assert evaluate(nothing, nothing, np.arange(4), normalise=True).i2t_r1 == 0.0


@pytest.mark.parametrize(
    "name", [d.name for d in objectives if not objective(d.name).needs_offline]
)
def test_embeddings_of_zeros_have_a_gradient(name: str) -> None:
    images, texts = torch.zeros(3, 4), torch.eye(4)[:3]
    for part in (images, texts):
        part.requires_grad_()
    objective(name)(images, texts).backward()
    for part in (images, texts):
        assert part.grad is not None
        assert torch.isfinite(part.grad).all()


def test_a_recipe_with_a_mark_and_windows_lines(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_bytes(b"\xef\xbb\xbfobjective: triplet\r\nepochs: 3\r\n")
    found = read_recipe(file)
    assert (found.objective, found.epochs) == ("triplet", 3)


@pytest.mark.parametrize(
    "last",
    ['{"epoch": ', "[1]", "{}", '{"step": "x"}', *WRONG, "9" * 5000, "\ud800\x00", "[" * 100_000],
)
def test_a_damaged_line_of_the_history_hides_nothing_before_it(last: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("data: scenes\n")
    good = [{"step": n, "epoch": n, "loss": 1.5, "val": {"rsum": 9.0}} for n in (1, 2)]
    text = "\n".join([*map(json.dumps, good), last])
    (tmp_path / "metrics.jsonl").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert Run.open(tmp_path).history == good


def test_half_a_character_is_written_and_read(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": "x\ud800", "é": "猫"})
    assert read_json(tmp_path / "a.json") == {"a": "x\ud800", "é": "猫"}
