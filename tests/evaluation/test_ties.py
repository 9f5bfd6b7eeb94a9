"""Ties, duplicates, collapse: nothing outranks itself and luck scores nothing."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simgrad
from simgrad.evaluation import rank_blocks
from simgrad.evaluation import rivals as counting
from simgrad.evaluation.duplicates import first_identical
from simgrad.evaluation.rivals import count_rivals
from simgrad.evaluation.scores import Embeddings, Scores


def pairs(images=40, captions_per_image=5, dimension=64, noise=0.0, seed=0):
    torch.manual_seed(seed)
    vectors = F.normalize(torch.randn(images, dimension))
    pairing = torch.arange(images).repeat_interleave(captions_per_image)
    captions = F.normalize(vectors[pairing] + noise * torch.randn(len(pairing), dimension))
    return vectors, captions, pairing


@pytest.mark.parametrize("size", [(1, 1), (40, 5), (333, 3), (1000, 5)])
def test_a_perfect_model_is_perfect(size):
    """Own scores from another kernel than the product would let items outrank themselves."""
    images, captions, pairing = pairs(*size, dimension=301)
    found = simgrad.evaluate(images, captions, pairing)
    assert found.rsum == 600
    assert found.i2t_map == 1
    assert found.ties == 0


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_a_collapsed_model_scores_nothing(noise):
    """Equal vectors, or equal but for the encoder's rounding."""
    torch.manual_seed(0)
    point = F.normalize(torch.randn(1, 300))
    images = point.repeat(60, 1) * (1 + noise * torch.randn(60, 1))
    captions = point.repeat(300, 1) * (1 + noise * torch.randn(300, 1))
    found = simgrad.evaluate(images, captions, torch.arange(300) // 5)
    assert found.rsum == 0
    assert found.i2t_map5 == 0
    assert found.i2t_medr == 296  # behind all 295 captions of other images
    assert found.t2i_medr == 60
    assert found.ties == 360


def test_a_collapsed_matrix_scores_nothing():
    found = simgrad.evaluate_similarities(np.zeros((30, 150)), np.arange(150) // 5)
    assert found.rsum == 0
    assert (found.ranks.i2t == 146).all()
    assert (found.ranks.t2i == 30).all()


@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_duplicates_tie_wherever_they_stand(rows):
    """Random places in the product, odd shapes: the last bits of equal pairs may differ there."""
    torch.manual_seed(3)
    images = F.normalize(torch.randn(101, 77))
    captions = F.normalize(torch.randn(303, 77) + 2 * images.repeat_interleave(3, 0))
    images = torch.cat([images, images[::2]])  # every second image occurs again, far away
    captions = torch.cat([captions, captions[::3][::2].repeat(1, 1)])
    pairing = torch.cat([torch.arange(303) // 3, torch.arange(101, 152)])
    counts = count_rivals(Embeddings(images, captions), pairing, rows)
    doubled = torch.isin(pairing, torch.cat([torch.arange(0, 101, 2), torch.arange(101, 152)]))
    # A caption of a doubled image has its double as a rival of equal score; the others have none.
    assert torch.equal(counts.t2i_tied, doubled.long())
    # A doubled image finds its double's identical caption exactly as good as its own.
    twins = torch.cat([torch.arange(0, 303, 6), torch.arange(303, 354)])
    assert (counts.i2t[twins] >= 1).all()


def test_block_size_does_not_matter():
    images, captions, pairing = pairs(97, 4, noise=0.2)
    captions[50] = captions[7]
    images[90] = images[3]
    whole = count_rivals(Embeddings(images, captions), pairing)
    for rows in (1, 10, 96, 97):
        part = count_rivals(Embeddings(images, captions), pairing, rows)
        assert torch.equal(part.i2t, whole.i2t)
        assert torch.equal(part.t2i, whole.t2i)
        assert torch.equal(part.i2t_tied, whole.i2t_tied)
        assert torch.equal(part.t2i_tied, whole.t2i_tied)


class Misled(Embeddings):
    """Guesses that are off by more than they admit."""

    def guess_own(self, image, caption):
        own, tolerance = super().guess_own(image, caption)
        return own + 0.1, tolerance


class Clueless(Embeddings):
    def guess_own(self, image, caption):
        return Scores.guess_own(self, image, caption)


@pytest.mark.parametrize("kind", [Misled, Clueless])
def test_a_bad_guess_costs_time_not_truth(kind):
    images, captions, pairing = pairs(50, 5, noise=0.3)
    right = count_rivals(Embeddings(images, captions), pairing, 13)
    assert torch.equal(count_rivals(kind(images, captions), pairing, 13).t2i, right.t2i)


def test_too_many_close_calls(monkeypatch):
    """Hundreds of rivals within rounding of the guess: more than are kept."""
    torch.manual_seed(0)
    images = F.normalize(1 + 1e-4 * torch.randn(60, 64))
    captions = F.normalize(1 + 1e-4 * torch.randn(120, 64))
    pairing = torch.arange(120) // 2
    kept = count_rivals(Embeddings(images, captions), pairing, 16)
    monkeypatch.setattr(counting, "_UNDECIDED", 10)
    again = count_rivals(Embeddings(images, captions), pairing, 16)
    assert torch.equal(kept.t2i, again.t2i)
    assert torch.equal(kept.t2i_tied, again.t2i_tied)
    blocks = Embeddings(images, captions).blocks(16)
    similarities = torch.cat([block.clone() for _, _, block in blocks])
    own = similarities[pairing, torch.arange(120)]
    rivals = (similarities >= own).sum(0) - 1
    assert torch.equal(kept.t2i, rivals)


def test_identical_rows_are_found():
    rows = torch.randn(500, 40)
    rows[300] = rows[4]
    rows[499] = rows[4]
    rows[7, 0], rows[8] = 0.0, rows[7]
    rows[8, 0] = -0.0
    first = first_identical(rows)
    assert first is not None
    changed = (first != torch.arange(500)).nonzero()[:, 0].tolist()
    assert changed == [8, 300, 499]
    assert first[[8, 300, 499]].tolist() == [7, 4, 4]
    assert first_identical(torch.randn(500, 40)) is None
    # Equal at every probed place, different elsewhere.
    near = torch.zeros(50, 1000)
    near[:, 500] = torch.arange(50)
    assert first_identical(near) is None


def test_identical_in_every_part():
    tokens = torch.randn(20, 3, 4)
    tokens[5] = tokens[2]
    mask = torch.ones(20, 3, dtype=torch.bool)
    first = first_identical(tokens, mask)
    assert first is not None
    assert first[5] == 2
    mask[5, 2] = False
    assert first_identical(tokens, mask) is None


def test_autocast_and_tf32_settings_do_not_leak_in():
    images, captions, pairing = pairs(30, 5, noise=0.5)
    plain = simgrad.evaluate(images, captions, pairing).to_dict()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert simgrad.evaluate(images, captions, pairing).to_dict() == plain
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_minus_infinity_masks():
    """Scores of minus infinity are legal; at equal minus infinity the tie counts against us."""
    similarities = torch.full((3, 3), -torch.inf)
    similarities[0, 0] = 1.0
    found = simgrad.evaluate_similarities(similarities, [0, 1, 2])
    assert found.ranks.i2t.tolist() == [1, 3, 3]
    assert found.ranks.t2i.tolist() == [1, 3, 3]
    again = rank_blocks(lambda a, b: similarities[a:b], [0, 1, 2])
    assert again.ranks.t2i.tolist() == [1, 3, 3]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_agrees():
    images, captions, pairing = pairs(200, 5, noise=0.3)
    captions[50], images[90] = captions[7], images[3]
    here = simgrad.evaluate(images.double(), captions.double(), pairing)
    there = simgrad.evaluate(images.double().cuda(), captions.double().cuda(), pairing.cuda())
    assert here.to_dict() == there.to_dict()
    matrix = (images @ captions.T).cuda()
    found = simgrad.evaluate_similarities(matrix, pairing)
    assert found.to_dict() == simgrad.evaluate_similarities(matrix.cpu(), pairing).to_dict()
    half = simgrad.evaluate(images.cuda().half(), captions.cuda().half(), pairing)
    assert half.rsum == pytest.approx(here.rsum, abs=2)


@pytest.mark.parametrize("kind", ["all differ", "some equal", "a part collapsed"])
def test_a_selection_knows_its_equal_rows_as_if_it_were_made_anew(kind: str) -> None:
    generator = torch.Generator().manual_seed(1)
    images, captions = (torch.randn(n, 40, generator=generator) for n in (30, 60))
    if kind == "some equal":
        images[7], captions[50] = images[3], captions[2]
    if kind == "a part collapsed":
        images[10:20] = images[10] * (1 + 1e-7 * torch.arange(10.0)[:, None])
    whole = Embeddings(images, captions)
    selections = (
        torch.arange(30),
        torch.arange(10, 20),
        torch.tensor([7, 3, 5]),
        torch.tensor([4, 4]),
    )
    for some in selections:
        for found in (
            whole.select(some, torch.arange(60)),
            whole.transposed().transposed().select(some, torch.arange(60)),
        ):
            anew = Embeddings(images[some], captions)
            assert _listed(found.same_images) == _listed(anew.same_images)
            assert _listed(found.same_captions) == _listed(anew.same_captions)
            assert torch.equal(found.images, anew.images)
            assert torch.equal(found.lengths[0], anew.lengths[0])


def _listed(same: torch.Tensor | None) -> list[int] | None:
    return None if same is None else same.tolist()
