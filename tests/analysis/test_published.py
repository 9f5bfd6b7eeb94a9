"""The published counting with its artefacts, each shown to be one."""

import math

import pytest
import torch

from simgrad.analysis import cocos


def batch_of(quality: float, images: int = 128, k: int = 5):
    """Similarities of images and captions; `quality` is how far positives stand out."""
    torch.manual_seed(0)
    owner = torch.arange(images * k) // k
    scores = 0.12 * torch.randn(images, images * k)
    scores[owner, torch.arange(images * k)] += quality
    return scores, owner


def test_published_t2i_zeros_of_smooth_ap_do_not_depend_on_the_model():
    """About 637 of 640 caption queries 'have no gradient', however good or bad the model is."""
    published, corrected, recall = [], [], []
    for quality in (0.25, 0.4, 0.6):
        scores, owner = batch_of(quality)
        recall.append(float((scores.argmax(0) == owner).float().mean()))
        published.append(cocos("smooth-ap", scores, owner, released=True).t2i.paper["C_0"])
        corrected.append(cocos("smooth-ap", scores, owner).t2i.paper["C_0"])
    assert recall[0] < 0.5 < 0.95 < recall[-1]  # models of very different quality
    assert all(634 <= zeros <= 640 for zeros in published)
    assert max(corrected) - min(corrected) > 100
    # 614 captions have no candidate in the slice at all.
    assert all(zeros >= 614 for zeros in published)


def test_published_smooth_ap_of_images_lacks_the_temperature():
    """On the image side the places are right: epsilon 0.01 counts as 1 would by the definition."""
    scores, owner = batch_of(0.4, 32)
    released = cocos("smooth-ap", scores, owner, 0.01, released=True).i2t.paper
    defined = cocos("smooth-ap", scores, owner, 1.0).i2t.paper
    assert released == pytest.approx(defined)
    assert cocos("smooth-ap", scores, owner, 0.01).i2t.paper["C_q"] > released["C_q"]


def test_published_smooth_ap_t2i_by_hand():
    """Caption i is given the candidates k i ... k i + k - 1 instead of its own image."""
    torch.manual_seed(1)
    scores = torch.rand(6, 12, dtype=torch.float64) * 0.1
    owner = torch.arange(12) // 2
    tau, epsilon = 0.01, 0.01
    counts = []
    for caption in range(12):
        line = scores[:, caption].tolist()
        count = 0
        for i in range(2 * caption, min(2 * caption + 2, 6)):
            others = [j for j in range(6) if j != i]
            G = {j: 1 / (1 + math.exp(-(line[j] - line[i]) / tau)) for j in others}
            rank = 1 + sum(G.values())
            count += sum(G[j] * (1 - G[j]) / rank**2 > epsilon for j in others)
        counts.append(count)
    found = cocos("smooth-ap", scores, owner, epsilon, released=True).t2i.paper
    some = [c for c in counts if c]
    assert found == pytest.approx({"C_q": sum(some) / len(some), "C_0": counts.count(0)})
    shuffled = torch.randperm(12)  # the order of captions in the batch plays no part
    again = cocos("smooth-ap", scores[:, shuffled], owner[shuffled], epsilon, released=True)
    assert again.t2i.paper["C_0"] >= 12 - 3


def test_published_triplet_counts_captions_along_images():
    # Caption 0 is close to both other images, the rest is far: one caption query has a gradient.
    scores = torch.tensor([[0.5, 0.0, 0.0], [0.45, 0.9, 0.0], [0.45, 0.0, 0.9]])
    assert cocos("triplet", scores).t2i.paper == {"C_q": 2, "C_B": 2, "C_0": 2}
    # Along images it looks like two queries with one triplet each; the sum over all is the same.
    published = cocos("triplet", scores, released=True)
    assert published.t2i.paper == {"C_q": 1, "C_B": 2, "C_0": 1}


def test_published_image_side_of_the_triplet_loss_is_right():
    torch.manual_seed(2)
    scores = torch.rand(16, 16) + 0.5 * torch.eye(16)
    for spec in ("triplet", "triplet-sh", "nt-xent"):
        assert cocos(spec, scores, released=True).i2t.paper == pytest.approx(
            cocos(spec, scores).i2t.paper
        )
    for spec in ("triplet-sh", "nt-xent"):
        assert cocos(spec, scores, released=True).t2i.paper == pytest.approx(
            cocos(spec, scores).t2i.paper
        )


def test_published_average_of_nothing_is_not_a_number():
    solved = torch.eye(4)
    assert math.isnan(cocos("triplet", solved, released=True).i2t.paper["C_q"])
    assert cocos("triplet", solved).i2t.paper == {"C_q": 0, "C_B": 0, "C_0": 4}


def test_published_batches_make_captions_of_one_image_negatives():
    # Two captions of one image, and one of another.
    scores = torch.tensor([[0.9, 0.8, 0.0], [0.0, 0.0, 0.9]])
    owner = torch.tensor([0, 0, 1])
    assert cocos("triplet", scores, owner).i2t.paper["C_B"] == 0
    # As pairs: row 0 has 0.8 > 0.7, row 1 (own 0.8) has 0.9.
    assert cocos("triplet", scores, owner, released=True).i2t.paper["C_B"] == 2
