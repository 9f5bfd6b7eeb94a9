"""All metrics against the slow sort, on signed scores with ties, and by every way in."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import simgrad
from simgrad.evaluation import evaluate_ensemble, rank_blocks
from simgrad.evaluation.rivals import count_rivals
from simgrad.evaluation.scores import Blocks, Embeddings

from . import reference


@st.composite
def cases(draw):
    images = draw(st.integers(1, 12))
    captions = draw(st.integers(images, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairing = np.concatenate([np.arange(images), random.integers(0, images, captions - images)])
    random.shuffle(pairing)
    levels = draw(st.sampled_from([1, 2, 3, 7, 1000]))  # few levels: many ties
    similarities = random.integers(-levels, levels, (images, captions)).astype(np.float64) / levels
    return similarities, pairing


def assert_equal(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from([torch.float32, torch.float64]))
def test_a_matrix_with_ties(case, dtype):
    similarities, pairing = case
    found = simgrad.evaluate_similarities(torch.tensor(similarities, dtype=dtype), pairing)
    assert_equal(found.to_dict(), reference.metrics(similarities.astype("f8"), pairing))


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(1, 5))
def test_a_function_of_blocks(case, rows):
    similarities, pairing = case
    whole = torch.tensor(similarities)
    found = rank_blocks(lambda a, b: whole[a:b], pairing, len(similarities), rows=rows)
    assert_equal(found.to_dict(), reference.metrics(similarities, pairing))
    assert torch.equal(whole, torch.tensor(similarities))  # what was given is not written to


@pytest.mark.filterwarnings("ignore:these vectors differ in length")
@settings(max_examples=80, deadline=None)
@given(cases(), st.integers(0, 10_000), st.integers(1, 7))
def test_embeddings_with_duplicates(case, seed, rows):
    """Whole-number vectors: products are exact, so duplicates tie in the reference too."""
    similarities, pairing = case
    random = np.random.default_rng(seed)
    images = random.integers(-2, 3, (similarities.shape[0], 3)).astype(np.float32)
    captions = random.integers(-2, 3, (similarities.shape[1], 3)).astype(np.float32)
    expected = reference.metrics(images @ captions.T, pairing)
    scores = Embeddings(torch.tensor(images), torch.tensor(captions))
    counts = count_rivals(scores, torch.tensor(pairing), rows)
    assert int((counts.t2i_tied > 0).sum()) == expected["t2i_ties"]
    assert int((counts.i2t_tied > 0).sum()) == expected["i2t_ties"]
    assert_equal(simgrad.evaluate(images, captions, pairing).to_dict(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_random_embeddings_in_every_type(dtype):
    torch.manual_seed(1)
    images = torch.nn.functional.normalize(torch.randn(60, 32)).to(dtype)
    pairing = torch.arange(60).repeat_interleave(5)[torch.randperm(300)]
    captions = torch.nn.functional.normalize(images[pairing].float() + 0.5 * torch.randn(300, 32))
    captions = captions.to(dtype)
    wide = (images.double() @ captions.double().T).numpy()
    found = simgrad.evaluate(images, captions, pairing).to_dict()
    assert_equal(found, reference.metrics(wide, pairing.numpy()))


def test_numpy_and_memory_maps(tmp_path):
    random = np.random.default_rng(0)
    similarities = random.normal(size=(7, 20)).astype(np.float32)
    pairing = np.arange(20) % 7
    np.save(tmp_path / "s.npy", similarities)
    mapped = np.load(tmp_path / "s.npy", mmap_mode="r")
    expected = reference.metrics(similarities.astype("f8"), pairing)
    assert_equal(simgrad.evaluate_similarities(mapped, pairing).to_dict(), expected)
    assert_equal(
        simgrad.evaluate_similarities(similarities.T.copy().T, pairing).to_dict(), expected
    )
    big_endian = similarities.astype(">f4")
    assert_equal(simgrad.evaluate_similarities(big_endian, pairing).to_dict(), expected)


def test_any_k():
    random = np.random.default_rng(3)
    similarities, pairing = random.normal(size=(9, 30)), np.arange(30) % 9
    found = simgrad.evaluate_similarities(similarities, pairing, recalls=(2, 3, 20))
    expected = reference.metrics(similarities, pairing, ks=(1, 2, 3, 5, 10, 20))
    assert found.i2t_r3 == pytest.approx(expected["i2t_r3"])
    assert found.t2i_r2 == pytest.approx(expected["t2i_r2"])
    assert found.rsum == pytest.approx(expected["rsum"])


def test_an_ensemble_is_the_mean_of_similarities():
    random = np.random.default_rng(4)
    one, two = (random.normal(size=(6, 18)) for _ in range(2))
    pairing = np.arange(18) // 3
    vectors = random.normal(size=(6, 4)), random.normal(size=(18, 4))
    vectors = tuple(v / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors)
    mean = (one + two + vectors[0] @ vectors[1].T) / 3
    found = evaluate_ensemble([one, two, vectors], pairing)
    assert_equal(found.to_dict(), reference.metrics(mean, pairing))


def test_selecting_from_a_function():
    whole = torch.randn(6, 8)
    blocks = Blocks(lambda a, b: whole[a:b], 6, 8)
    chosen = blocks.select(torch.tensor([4, 1]), torch.tensor([0, 7, 2]))
    assert torch.equal(chosen.compute(0, 2), whole[[4, 1]][:, [0, 7, 2]])
    assert torch.equal(blocks.transposed().compute(2, 4), whole.T[2:4])
