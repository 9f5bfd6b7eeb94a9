"""Features and captions of random numbers and words, for benchmarks that look at speed alone."""

from pathlib import Path
from typing import Any

import numpy as np

from simgrad.data.base import Split

_WORDS = [f"word{k}" for k in range(2000)]
_DISTINCT = 256  # features that differ: enough that reading them costs what it costs


class Numbers:
    """Features made of random numbers."""

    header = "random"

    def __init__(self, images: int, shape: tuple[int, ...]) -> None:
        self.images, self.shape = images, shape
        random = np.random.default_rng(0)
        self.array = random.standard_normal((_DISTINCT, *shape), dtype=np.float32)

    def __len__(self) -> int:
        return self.images

    def rows(self, indices: Any) -> Any:
        return self.array[np.asarray(indices) % _DISTINCT]


def captions(
    count: int, seed: int = 0, words: list[str] = _WORDS, *, uneven: bool = False
) -> list[str]:
    """8 to 16 words each; `uneven`: as long as those of Flickr8k, 11 on average and up to 37."""
    random = np.random.default_rng(seed)
    lengths = random.integers(8, 17, count)
    if uneven:
        lengths = np.clip(3 + random.gamma(4, 2, count), 3, 37).astype(int)
    return [" ".join(random.choice(words, length)) for length in lengths]


def split(
    images: int, shape: tuple[int, ...], words: list[str] = _WORDS, *, uneven: bool = False
) -> Split:
    """Five captions an image."""
    owner = np.repeat(np.arange(images), 5)
    names = [str(k) for k in range(images)]
    features = Numbers(images, shape)
    told = captions(5 * images, words=words, uneven=uneven)
    return Split("numbers", "train", told, owner, names, features=features)


def write_precomputed(folder: Path, sizes: dict[str, int], width: int) -> None:
    """The same on disk, in VSE++'s layout: split -> images."""
    for seed, (name, images) in enumerate(sizes.items()):
        np.save(folder / f"{name}_ims.npy", Numbers(images, (width,)).rows(np.arange(images)))
        text = "\n".join(captions(5 * images, seed)) + "\n"
        (folder / f"{name}_caps.txt").write_text(text, encoding="utf-8")
