"""Lists that `mine --aoq` writes, read as AOQ's own loader reads them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from simgrad.cli.mine import mine
from simgrad.core.errors import InputError
from simgrad.data.candidates import Candidates

ORIGINAL = Path(__file__).parents[1] / "fixtures/aoq-lists"  # its tools' lists of 40 images
IMAGES, DEPTH = 40, 60


class Drawn(NamedTuple):
    """What its loader gives for one item: rows of images and of captions."""

    caption: int  # offline negative of the image
    image: int  # offline negative of the caption
    partner_caption: int  # of that image
    partner_image: int  # of that caption


class Loader:
    """AOQ's way with its files: no check, any number is a row, // is Python 2's division."""

    def __init__(self, folder: Path, data_path: str) -> None:
        tag = data_path.split("/")[-1].split("_")[0]
        self.i2t = np.load(f"{folder}/i2t_{tag}.npy")
        self.t2i = np.load(f"{folder}/t2i_{tag}.npy")

    def item(self, index: int, n: int, n2: int) -> Drawn:
        """Item `index`, where it drew `n` of its candidates and `n2` of five captions."""
        images, captions = np.arange(IMAGES), np.arange(5 * IMAGES)
        caption = self.i2t[images[index // 5]][n]
        image = self.t2i[index][n // 5]
        return Drawn(
            int(captions[int(caption)]),
            int(images[int(image)]),
            int(captions[int(image * 5 + n2)]),
            int(images[int(caption // 5)]),
        )


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    """Those from which the original lists were made."""
    with np.load(ORIGINAL / "golden.npz") as golden:
        np.savez(
            tmp_path / "embeddings.npz",
            images=golden["images"],
            texts=golden["captions"],
            image_of_caption=golden["image_of_caption"],
        )
    return tmp_path / "embeddings.npz"


def mined(embeddings: Path, **filters: Any) -> tuple[Loader, Candidates]:
    """What its loader makes of our files, and our own lists."""
    folder = embeddings.parent / "offlinecandidates"
    mine(str(embeddings), output=str(folder), depth=DEPTH, aoq="coco", **filters)
    return Loader(folder, "./data/coco_precomp"), Candidates.load(folder)


def items(loader: Loader) -> list[tuple[int, Drawn]]:
    return [(i, loader.item(i, n, n % 5)) for i in range(5 * IMAGES) for n in range(DEPTH)]


def test_without_filters_it_draws_what_its_own_tools_list(embeddings: Path) -> None:
    loader, _ = mined(embeddings)
    assert loader.i2t.shape == (IMAGES, DEPTH)
    assert loader.t2i.shape == (5 * IMAGES, IMAGES)  # of 39 others: one is there twice
    assert items(loader) == items(Loader(ORIGINAL, "coco_precomp"))


@pytest.mark.parametrize("highest", [0.3, -0.4, -2.0])  # some lists short, some empty, all empty
def test_with_a_filter_it_draws_from_what_is_left(embeddings: Path, highest: float) -> None:
    loader, ours = mined(embeddings, max_score=highest)
    assert ((ours.i2t < 0).any(), (ours.t2i < 0).any()) == (highest < 0, True)
    assert loader.i2t.shape == ours.i2t.shape
    assert loader.t2i.shape == ours.t2i.shape
    assert {loader.i2t.dtype, loader.t2i.dtype} == {np.dtype(np.int32)}
    assert (min(loader.i2t.min(), loader.t2i.min()), loader.i2t.max() < 5 * IMAGES) == (0, True)
    for index, drawn in items(loader):
        captions, images = ours.i2t[index // 5], ours.t2i[index]
        assert (captions < 0).all() or drawn.caption in captions
        assert (images < 0).all() or drawn.image in images
        # Never the own pair, and partners that belong together.
        assert index // 5 not in (drawn.caption // 5, drawn.image, drawn.partner_image)
        assert drawn.partner_caption // 5 == drawn.image
        assert drawn.partner_image == drawn.caption // 5


def test_data_that_its_loader_would_misread_are_refused(embeddings: Path) -> None:
    """It takes a caption's row divided by five for its image."""
    with np.load(embeddings) as arrays:
        found = dict(arrays)
    turned = np.random.default_rng(0).permutation(5 * IMAGES)
    found["texts"], found["image_of_caption"] = (
        found[name][turned] for name in ("texts", "image_of_caption")
    )
    np.savez(embeddings, **found)
    with pytest.raises(InputError, match="`aoq=coco`: AOQ's code takes captions 0 to 4"):
        mined(embeddings)
    assert not (embeddings.parent / "offlinecandidates").exists()
