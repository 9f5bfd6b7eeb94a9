"""Images of a data set of features find their pictures in another one, by their captions."""

import dataclasses

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import Split
from simgrad.report.retrieval import PictureLender

WORLD = "scenes(train=12, val=3, test=6)"


def features_alone(split: Split, order: list[int]) -> Split:
    """The same images in another order under other names, captions written a little differently."""
    each = [len(split.captions_of(image)) for image in order]
    rows = [int(row) for image in order for row in split.captions_of(image)]
    return Split(
        dataset="elsewhere",
        name="testall",
        captions=[split.captions[row].upper().replace(" ", "  ") + " ." for row in rows],
        image_of_caption=np.repeat(np.arange(len(order)), each),
        image_names=[str(7 * i) for i in order],
    )


def test_every_image_gets_its_own_picture() -> None:
    dataset = open_dataset(WORLD)
    lender = PictureLender(dataset)
    test, order = dataset.split("test"), [4, 0, 5, 2]
    assert test.pictures is not None
    asked = features_alone(test, order)
    for row, image in enumerate(order):
        lent = np.asarray(lender.picture(asked, row))
        assert np.array_equal(lent, np.asarray(test.pictures.picture(image)))


def test_a_caption_of_two_images_speaks_for_neither() -> None:
    dataset = open_dataset(WORLD)
    test = dataset.split("test")
    assert test.pictures is not None
    same = test.captions[int(test.captions_of(0)[0])]
    captions = list(test.captions)
    for row in test.captions_of(1)[:4]:  # four of five are the first image's
        captions[int(row)] = same
    shared = dataclasses.replace(test, captions=captions)
    lender = PictureLender(dataclasses.replace(dataset, splits={"test": shared}))
    for image in (0, 1):
        lent = np.asarray(lender.picture(shared, image))
        assert np.array_equal(lent, np.asarray(test.pictures.picture(image)))


def test_who_has_no_picture_is_named() -> None:
    dataset = open_dataset(WORLD)
    lender = PictureLender(dataset)
    asked = dataclasses.replace(
        features_alone(dataset.split("test"), [1]), captions=["nobody's"] * 5
    )
    with pytest.raises(InputError, match="image 7: no picture has its captions"):
        lender.picture(asked, 0)
    features = open_dataset("scenes(train=2, val=1, test=1, features=global)")
    splits = {n: dataclasses.replace(s, pictures=None) for n, s in features.splits.items()}
    with pytest.raises(InputError, match="has no pictures"):
        PictureLender(dataclasses.replace(features, splits=splits))
