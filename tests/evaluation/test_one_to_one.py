"""As many captions as images, and nothing said: caption j belongs to image j."""

import numpy as np
import pytest

import simgrad
from simgrad.core.errors import InputError


def test_pairs_are_those_of_the_diagonal() -> None:
    random = np.random.default_rng(0)
    images = random.normal(size=(12, 8))
    texts = images + random.normal(size=(12, 8))
    given = simgrad.evaluate(images, texts, np.arange(12), normalise=True)
    assert simgrad.evaluate(images, texts, normalise=True).to_dict() == given.to_dict()
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (images, texts)]
    found = simgrad.evaluate_similarities(unit[0] @ unit[1].T)
    assert found.rsum == pytest.approx(given.rsum)


def test_so_many_captions_of_each_image() -> None:
    random = np.random.default_rng(0)
    images, texts = random.normal(size=(6, 8)), random.normal(size=(12, 8))
    wanted = simgrad.evaluate(images, texts, np.arange(12) // 2, normalise=True).to_dict()
    found = simgrad.evaluate(images, texts, captions_per_image=2, normalise=True)
    assert found.to_dict() == wanted
    S = images @ texts.T
    assert simgrad.evaluate_similarities(S, captions_per_image=2).to_dict() == (
        simgrad.evaluate_similarities(S, np.arange(12) // 2).to_dict()
    )
    with pytest.raises(InputError, match="6 images with 5 captions each would be 30 captions"):
        simgrad.evaluate(images, texts, captions_per_image=5)
    with pytest.raises(InputError, match="not both"):
        simgrad.evaluate(images, texts, np.arange(12) // 2, captions_per_image=2)


def test_other_numbers_of_captions_need_to_be_told() -> None:
    with pytest.raises(InputError, match="image_of_caption"):
        simgrad.evaluate(np.eye(4), np.ones((8, 4)))
