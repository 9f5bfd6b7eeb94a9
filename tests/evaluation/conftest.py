"""Three small systems on the same images and captions, in files."""

import numpy as np
import pytest


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    images = random.normal(size=(40, 8))
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    pairing = np.repeat(np.arange(40), 5)
    for name, noise in (("a", 0.2), ("b", 0.6), ("c", 0.2)):
        texts = images[pairing] + noise * random.normal(size=(200, 8))
        texts /= np.linalg.norm(texts, axis=1, keepdims=True)
        np.savez(tmp_path / f"{name}.npz", images=images, texts=texts, image_of_caption=pairing)
        np.save(tmp_path / f"{name}.npy", (images @ texts.T).astype(np.float32))
    return tmp_path
