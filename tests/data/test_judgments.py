"""Flickr8k's human judgments."""

import os
from pathlib import Path

import pytest

from simgrad.core.errors import InputError
from simgrad.data import open_dataset, read_judgments

from . import layout_writers as write

FLICKR8K = Path(os.environ.get("SIMGRAD_FLICKR8K", "flickr8k"))  # a folder of yours
real = pytest.mark.skipif(
    not FLICKR8K.is_dir(), reason="needs Flickr8k: set SIMGRAD_FLICKR8K to its folder"
)


def test_judgments(tmp_path: Path) -> None:
    (tmp_path / "ExpertAnnotations.txt").write_text(
        "e.jpg\te.jpg#1\t4\t4\t4\ne.jpg\ta.jpg#0\t1\t1\t1\ne.jpg\te.jpg#2\t1\t2\t3\n"
    )
    (tmp_path / "CrowdFlowerAnnotations.txt").write_text("e.jpg\te.jpg#0\t0.25\t1\t3\n")
    split = open_dataset(write.karpathy(tmp_path / "data")).split("test")
    judgments = read_judgments(tmp_path)
    expert = judgments["expert"]
    images, captions, pairs = expert.rows(split)
    assert images.tolist() == [0, 0]
    assert captions.tolist() == [1, 2]
    assert pairs.tolist() == [0, 2]  # a.jpg#0 is in another split
    assert expert.relevance()[pairs].tolist() == pytest.approx([1.0, 1 / 3])
    assert judgments["crowd"].relevance().tolist() == [0.25]
    with pytest.raises(InputError, match="neither"):
        read_judgments(tmp_path / "data")


@real
def test_every_flickr8k_judgment_finds_its_caption() -> None:
    split = open_dataset(FLICKR8K).split("test")
    for kind, pairs in (("expert", 5822), ("crowd", 47830)):
        judgments = read_judgments(FLICKR8K)[kind]
        assert len(judgments.images) == pairs
        images, captions, rows = judgments.rows(split)
        assert len(rows) == pairs
        # A caption of the image itself is judged better than those of others.
        own = split.image_of_caption[captions] == images
        relevance = judgments.relevance()[rows]
        if own.any():
            assert relevance[own].mean() > relevance[~own].mean() + 0.3
