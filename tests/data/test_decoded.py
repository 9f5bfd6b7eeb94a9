"""Pictures decoded once: the bytes that the transform gives, however many threads decode."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.data import Split, open_dataset
from simgrad.data.batches import Source, resident_features
from simgrad.data.decoded import DecodedPictures
from simgrad.data.picture_files import FilePictures
from simgrad.data.transforms import named
from simgrad.data.vocabulary import Vocabulary


def scenes() -> Split:
    return open_dataset("scenes(train=6, val=1, test=1, size=24)").split("train")


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("style", ["vse++", "plain"])
def test_bytes_are_those_of_the_transform(style: str, workers: int) -> None:
    split = scenes()
    assert split.pictures is not None
    made = DecodedPictures.of(split, style, 16, workers)
    assert (len(made), made.shape) == (6, (3, 16, 16))
    rows = np.array([4, 0, 4])
    cut = named(style, train=False, size=16)
    expected = [cut(split.pictures.picture(int(row)), None).numpy() for row in rows]
    assert made.rows(rows).dtype == np.uint8
    assert np.array_equal(made.rows(rows), np.stack(expected))


def test_they_stay_bytes_on_the_device() -> None:
    split = scenes()
    shown = replace(split, features=DecodedPictures.of(split, "plain", 8))
    whole = resident_features(shown, torch.device("cpu"), block=4)  # an uneven last block
    assert whole.dtype == torch.uint8
    assert whole.shape == (6, 3, 8, 8)
    source = Source(shown, Vocabulary.build(split.captions, min_count=1), resident=True)
    assert source.resident
    assert source.image_shape == (3, 8, 8)


def test_large_files_are_decoded_small_and_look_alike(tmp_path: Path) -> None:
    x = np.linspace(0, 255, 512)
    picture = np.stack([np.add.outer(x, x) / 2, np.tile(x, (512, 1)), np.tile(x, (512, 1)).T], 2)
    Image.fromarray(picture.astype(np.uint8)).save(tmp_path / "a.jpg", quality=95)
    files = FilePictures(tmp_path, ["a.jpg"])
    found = DecodedPictures(files, "plain", 64).rows(np.array([0]))[0]
    exact = named("plain", train=False, size=64)(files.picture(0), None).numpy()
    assert np.abs(found.astype(int) - exact).mean() < 2


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    for workers in (1, 2):
        made = DecodedPictures(FilePictures(tmp_path, ["b.jpg"]), "plain", 8, workers)
        with pytest.raises(InputError, match=r"b\.jpg"):
            made.rows(np.array([0]))
    with pytest.raises(InputError, match="has no pictures"):
        DecodedPictures.of(replace(scenes(), pictures=None), "plain", 8)
