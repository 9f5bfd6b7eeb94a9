"""Many positives, graded relevance, human judgments, cross-retrieval ranks, re-ranking."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import simgrad
from simgrad.core.errors import InputError
from simgrad.data.base import Split
from simgrad.evaluation import (
    Truth,
    compare_cross_ranks,
    cross_ranks,
    evaluate_reranked,
    histogram,
    ndcg,
    truth_metrics,
)
from simgrad.evaluation.judgments import agreement
from simgrad.evaluation.scores import Embeddings, Matrix
from simgrad.retriever.similarities import evaluate_judgments, evaluate_truth

from .reference import ordered, places_of


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(2, 20), st.sampled_from([1, 2, 50]))
def test_any_truth(seed, queries, candidates, levels):
    random = np.random.default_rng(seed)
    scores = random.integers(-levels, levels, (queries, candidates)) / levels
    mask = random.random((queries, candidates)) < 0.3
    mask[0, 0] = True
    found = truth_metrics(Matrix(torch.tensor(scores)), Truth.of_mask(mask))
    places = [places_of(ordered(s, m)) for s, m in zip(scores, mask, strict=True) if m.any()]
    assert found["r5"] == pytest.approx(100 * np.mean([p[0] <= 5 for p in places]))
    assert found["mrr"] == pytest.approx(np.mean([1 / p[0] for p in places]))
    ap = [np.mean([j / x for j, x in enumerate(p, 1)]) for p in places]
    assert found["map"] == pytest.approx(np.mean(ap))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([None, 1, 3, 10]), st.booleans())
def test_ndcg(seed, depth, exponential):
    random = np.random.default_rng(seed)
    scores = random.integers(-4, 4, (5, 12)) / 4
    gain = random.integers(0, 4, (5, 12)) * (random.random((5, 12)) < 0.5)
    gain[:, 0] = 1
    query, candidate = np.nonzero(gain)
    truth = Truth.of(query, candidate, gain[query, candidate].astype(float))
    found = ndcg(Matrix(torch.tensor(scores)), truth, depth, exponential=exponential)
    worth = 2.0**gain - 1 if exponential else gain.astype(float)

    def dcg(values):
        return sum(v / np.log2(1 + p) for p, v in enumerate(values[:depth], 1))

    each = []
    for s, w in zip(scores, worth, strict=True):
        order = sorted(range(12), key=lambda j: (-s[j], w[j]))
        each.append(dcg(w[order]) / dcg(np.sort(w)[::-1]))
    assert found == pytest.approx(np.mean(each))


def test_truth_without_pairs_or_out_of_range():
    scores = Matrix(torch.zeros(2, 3))
    with pytest.raises(InputError, match="no true pair"):
        truth_metrics(scores, Truth.of_mask(np.zeros((2, 3), dtype=bool)))
    with pytest.raises(InputError, match="candidate 3"):
        truth_metrics(scores, Truth.of(np.array([0]), np.array([3])))


def split_of(pairing, **options):
    names = [f"{i}.jpg" for i in range(pairing.max() + 1)]
    turn = [int((pairing[:j] == i).sum()) for j, i in enumerate(pairing)]
    ids = [f"{i}.jpg#{k}" for i, k in zip(pairing, turn, strict=True)]
    return Split("f8k", "test", [""] * len(pairing), pairing, names, caption_ids=ids, **options)


def test_human_judgments(tmp_path):
    pairing = np.arange(12) // 2
    split = split_of(pairing)
    similarities = np.random.default_rng(0).normal(size=(6, 12))
    judged = [(0, 3, [1, 1, 2]), (0, 0, [4, 4, 4]), (1, 7, [2, 3, 2]), (5, 2, [1, 2, 1])]
    expert = "".join(
        f"{i}.jpg\t{split.caption_ids[c]}\t{a}\t{b}\t{d}\n" for i, c, (a, b, d) in judged
    )
    (tmp_path / "ExpertAnnotations.txt").write_text(expert + "9.jpg\t9.jpg#0\t1\t1\t1\n")
    crowd = "0.jpg\t2.jpg#1\t0.5\t1\t1\n0.jpg\t3.jpg#0\t0.25\t1\t3\n1.jpg\t1.jpg#0\t1\t3\t0\n"
    (tmp_path / "CrowdFlowerAnnotations.txt").write_text(crowd)
    found = evaluate_judgments(Matrix(torch.tensor(similarities)), split, tmp_path)
    scores = [similarities[i, c] for i, c, _ in judged]
    ratings = np.array([r for _, _, r in judged])
    assert found["expert_pairs"] == 4
    assert found["expert_others_pairs"] == 3
    assert found["expert_spearman"] == pytest.approx(
        stats.spearmanr(scores, ratings.mean(1)).statistic
    )
    # Of the crowd's three pairs one is new and approved: image 0 with caption 5.
    assert found["crowd_approved"] == 1
    mask = pairing == np.arange(6)[:, None]
    mask[0, 5] = True
    expected = truth_metrics(Matrix(torch.tensor(similarities)), Truth.of_mask(mask))
    assert found["i2t_crowd_r1"] == expected["r1"]
    assert found["i2t_crowd_map"] == expected["map"]
    gain = np.zeros((6, 12))
    for i, c, rating in judged:
        gain[i, c] = np.mean(rating) - 1
    query, candidate = np.nonzero(gain)
    truth = Truth.of(query, candidate, gain[query, candidate])
    assert found["i2t_expert_ndcg10"] == pytest.approx(
        ndcg(Matrix(torch.tensor(similarities)), truth, 10)
    )


def test_agreement_is_perfect_and_reversed():
    ratings = np.array([[1, 1, 1], [2, 2, 2], [3, 3, 3], [4, 4, 4]])
    same = agreement(np.arange(4.0), ratings)
    assert same["kendall_b"] == same["kendall_c"] == same["spearman"] == pytest.approx(1)
    assert agreement(-np.arange(4.0), ratings)["kendall_b"] == pytest.approx(-1)


def test_judgments_of_other_images(tmp_path):
    (tmp_path / "CrowdFlowerAnnotations.txt").write_text("x.jpg\tx.jpg#0\t1\t3\t0\n")
    with pytest.raises(InputError, match="name no two pairs"):
        evaluate_judgments(Matrix(torch.zeros(2, 2)), split_of(np.arange(2)), tmp_path)


def test_exact_truth_of_the_data():
    mask = np.array([[1, 1, 0, 1], [0, 0, 1, 1]], dtype=bool)
    split = split_of(np.array([0, 0, 1, 1]), truth=lambda i, c: mask[np.ix_(i, c)])
    similarities = np.array([[0.1, 0.2, 0.3, 0.9], [0.5, 0.4, 0.3, 0.2]])
    found = evaluate_truth(Matrix(torch.tensor(similarities)), split)
    assert found["true_pairs"] == 5
    assert found["i2t_truth_r1"] == 50  # caption 3 is true of image 0 too
    assert found["t2i_truth_r1"] == pytest.approx(25)  # caption 3, of either image


def test_cross_retrieval_ranks_by_hand():
    # Two images with two captions each. For image 0 (captions 0, 1) and image 1 (captions 2, 3):
    similarities = np.array([[0.9, 0.1, 0.5, 0.2], [0.3, 0.8, 0.6, 0.7]])
    ranks = simgrad.evaluate_similarities(similarities, [0, 0, 1, 1]).ranks
    # caption: r_i  r_t (siblings left out)        max(2 r_i - 1, r_t)
    #    0      1   1                               1
    #    1      2   0.1: behind 0.5, 0.2 -> 3       3
    #    2      1   0.6: behind 0.8 -> 2            2
    #    3      1   0.7: behind 0.8 -> 2            2
    assert cross_ranks(ranks).tolist() == [1, 3, 2, 2]
    assert histogram(cross_ranks(ranks)) == {
        "1": 1, "2-10": 3, "11-50": 0, "51-100": 0, "101-200": 0, ">200": 0
    }  # fmt: skip
    better = simgrad.evaluate_similarities(np.array([[3, 3, 0, 0], [0, 0, 3, 3]]), [0, 0, 1, 1])
    found = compare_cross_ranks(ranks, better.ranks)
    assert (found.better, found.worse, found.same) == (3, 0, 1)
    assert found.second["1"] == 4


def test_cross_retrieval_rank_on_coco_size_is_the_papers():
    random = np.random.default_rng(0)
    similarities = random.normal(size=(30, 150))
    pairing = np.arange(150) // 5
    ranks = simgrad.evaluate_similarities(similarities, pairing).ranks
    for c in range(0, 150, 7):
        own = similarities[pairing[c], c]
        image_rank = 1 + (similarities[:, c] > own).sum()
        text_rank = 1 + (similarities[pairing[c], pairing != pairing[c]] > own).sum()
        assert cross_ranks(ranks)[c] == max(5 * image_rank - 4, text_rank)
    assert histogram(np.array([1, 2, 10, 11, 200, 201, 9999]))[">200"] == 2


def reranked_by_hand(first, second, true, k):
    """Places of the true items after the first k were ordered again."""
    order = sorted(range(len(first)), key=lambda j: (-first[j], true[j]))
    head = sorted(order[:k], key=lambda j: (-second[j], true[j]))
    return [place for place, j in enumerate(head + order[k:], 1) if true[j]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 14), st.sampled_from([3, 1000]))
def test_reranking(seed, k, levels):
    random = np.random.default_rng(seed)
    pairing = random.permutation(np.arange(12) % 5)
    # Distinct first scores: which of several tied rivals is scored again would be a toss-up.
    first = random.permutation(60).reshape(5, 12) / 60
    second = random.integers(-levels, levels, (5, 12)) / levels
    found = evaluate_reranked(
        Matrix(torch.tensor(first)),
        pairing,
        lambda pairs: torch.tensor(second)[pairs[:, 0], pairs[:, 1]],
        k,
    ).ranks
    for i in range(5):
        places = reranked_by_hand(first[i], second[i], pairing == i, k)
        assert sorted(found.caption_rank[pairing == i]) == places
    for c in range(12):
        places = reranked_by_hand(first[:, c], second[:, c], np.arange(5) == pairing[c], k)
        assert found.t2i[c] == places[0]


def test_reranking_with_a_perfect_scorer():
    torch.manual_seed(0)
    images, captions = torch.randn(50, 8), torch.randn(250, 8)
    pairing = np.arange(250) // 5
    scores = Embeddings(images, captions)
    own = torch.from_numpy(pairing)
    perfect = lambda pairs: (own[pairs[:, 1]] == pairs[:, 0]).float()  # noqa: E731
    assert evaluate_reranked(scores, pairing, perfect, 250).rsum == 600
    before = simgrad.evaluate_similarities(images @ captions.T, pairing, recalls=(20,))
    after = evaluate_reranked(scores, pairing, perfect, 20)
    assert after.i2t_r1 == before.i2t_r20  # whatever was among the first 20 comes first
    assert after.t2i_r1 == before.t2i_r20
    with pytest.raises(InputError, match="at least one"):
        evaluate_reranked(scores, pairing, perfect, 0)
    with pytest.raises(InputError, match="second scorer"):
        evaluate_reranked(scores, pairing, lambda pairs: torch.full((len(pairs),), torch.nan), 5)
