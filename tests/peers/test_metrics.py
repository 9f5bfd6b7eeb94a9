"""R@K, MRR, mAP, R-precision and nDCG of ranx, torchmetrics, sentence-transformers and
pytorch-metric-learning, on similarities that are signed, crowded, or have several true answers.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import simgrad
from simgrad.evaluation.scores import Matrix
from simgrad.evaluation.truth import Truth, ndcg, truth_metrics

# --- what ranx's own tests expect: the first query's list, its true items, the value

LISTED = [2, 4, 3, 1, 5, 6, 7]  # items, the first ranked first
FACTS: list[tuple[str, list[int], list[int], float]] = [
    ("rprecision", LISTED, [1, 2, 3], 2 / 3),
    ("rprecision", LISTED, [1, 2], 1 / 2),
    ("mrr", [2, 3, 1, 4, 5], [3], 1 / 2),
    ("mrr", [1, 2, 3, 4, 5], [1], 1.0),
    ("r5", [1, 2, 4, 3, 5, 7], [1, 2, 4], 100.0),
    ("r5", [1, 2, 3, 4, 5, 7], [7], 0.0),
    ("r1", LISTED, [2], 100.0),
    ("map", [4, 5, 6, 2, 1, 7, 3], [1, 2, 3], (1 / 4 + 2 / 5 + 3 / 7) / 3),
    ("map", [4, 5, 6, 2, 1, 7, 3], [4, 5, 6, 7], (1 + 1 + 1 + 4 / 6) / 4),
    # torchmetrics' own examples: target [False, False, True], and [False, True, False, True].
    ("map", [1, 2, 3], [1, 3], (1 + 2 / 3) / 2),
    ("mrr", [1, 2, 3], [2], 1 / 2),
    ("rprecision", [1, 2, 3], [1, 3], 1 / 2),
    ("r1", [1, 2, 3], [2], 0.0),
]


def of_list(ranked: list[int], true: list[int]) -> tuple[Matrix, Truth]:
    """A matrix of one query that ranks items as listed; half of its scores are below 0."""
    items = sorted(ranked)
    scores = [3.5 - ranked.index(item) for item in items]
    mask = np.isin(items, true)[None]
    return Matrix(torch.tensor([scores])), Truth.of_mask(mask)


@pytest.mark.parametrize(("name", "ranked", "true", "value"), FACTS)
def test_facts(name: str, ranked: list[int], true: list[int], value: float) -> None:
    assert truth_metrics(*of_list(ranked, true))[name] == pytest.approx(value)


GAINS = {2: 5.0, 4: 4.0, 5: 3.0, 10: 2.0}  # ranx: items and how relevant each is


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("ranked", [[1, 2, 3, 4, 5], [10, 5, 2, 4, 3], [2, 4, 5, 10, 1]])
def test_facts_of_graded_truth(ranked: list[int], exponential: bool) -> None:
    """An item that was not found has no place at all."""
    worth = {i: 2**g - 1 if exponential else g for i, g in GAINS.items()}
    found = sum(worth.get(item, 0) / np.log2(2 + k) for k, item in enumerate(ranked))
    best = sum(w / np.log2(2 + k) for k, w in enumerate(sorted(worth.values(), reverse=True)))
    columns = np.array([ranked.index(i) if i in ranked else -1 for i in GAINS])
    truth = Truth.of(np.zeros(4, dtype=np.int64), columns, np.array(list(GAINS.values())))
    scores = Matrix(-torch.arange(len(ranked)).float()[None])
    assert ndcg(scores, truth, 10, exponential=exponential) == pytest.approx(found / best)


# --- the same question to them and to us

WORLDS = ("signed", "positive", "several", "sparse")


def world(name: str) -> tuple[Any, Any]:
    """(queries, candidates) similarities and which are true."""
    random = np.random.default_rng(WORLDS.index(name))
    S = random.normal(size=(12, 40)).astype(np.float32)
    if name == "positive":
        S = np.abs(S) + np.float32(0.01)
    if name in ("signed", "positive"):
        truth = np.arange(12)[:, None] == np.arange(40) % 12
    else:
        truth = random.random((12, 40)) < (0.3 if name == "several" else 0.08)
    if name == "sparse":
        truth[:4] = False  # queries without any answer are left out, by all of us
        truth[4:, 0] |= ~truth[4:].any(1)
    return S, truth


@pytest.fixture(scope="module")
def ranx() -> Any:
    """Without its compiler, which takes half a minute for a few small lists."""
    numba = pytest.importorskip("numba")
    before, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, True
    yield pytest.importorskip("ranx")
    numba.config.DISABLE_JIT = before


def by_ranx(ranx: Any, S: Any, truth: Any, measure: str) -> float:
    queries = [q for q in range(len(truth)) if truth[q].any()]
    qrels = {f"q{q}": {f"d{d}": int(truth[q, d]) for d in truth[q].nonzero()[0]} for q in queries}
    run = {f"q{q}": {f"d{d}": float(s) for d, s in enumerate(S[q])} for q in queries}
    return float(ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), measure))


RANX = {
    "hit_rate@1": "r1",
    "hit_rate@5": "r5",
    "hit_rate@10": "r10",
    "map": "map",
    "mrr": "mrr",
    "r-precision": "rprecision",
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("measure", RANX)
def test_ranx(ranx: Any, measure: str, name: str) -> None:
    S, truth = world(name)
    found = truth_metrics(Matrix(torch.from_numpy(S)), Truth.of_mask(truth))[RANX[measure]]
    scale = 100 if measure.startswith("hit") else 1
    assert found == pytest.approx(scale * by_ranx(ranx, S, truth, measure))


@pytest.mark.parametrize("depth", [None, 5])
@pytest.mark.parametrize("measure", ["ndcg", "ndcg_burges"])
def test_ranx_graded(ranx: Any, measure: str, depth: int | None) -> None:
    S, truth = world("several")
    gain = truth * np.random.default_rng(9).integers(1, 4, truth.shape)
    query, candidate = gain.nonzero()
    true = Truth.of(query, candidate, gain[query, candidate].astype(float))
    scores = Matrix(torch.from_numpy(S))
    found = ndcg(scores, true, depth, exponential=measure == "ndcg_burges")
    at = measure if depth is None else f"{measure}@{depth}"
    assert found == pytest.approx(by_ranx(ranx, S, gain, at))


TORCHMETRICS: dict[str, tuple[str, dict[str, int]]] = {
    "r1": ("RetrievalHitRate", {"top_k": 1}),
    "r5": ("RetrievalHitRate", {"top_k": 5}),
    "r10": ("RetrievalHitRate", {"top_k": 10}),
    "map": ("RetrievalMAP", {}),
    "mrr": ("RetrievalMRR", {}),
    "rprecision": ("RetrievalRPrecision", {}),
    "ndcg": ("RetrievalNormalizedDCG", {}),
    "ndcg5": ("RetrievalNormalizedDCG", {"top_k": 5}),
}


def by_torchmetrics(S: Any, truth: Any, name: str) -> float:
    retrieval = pytest.importorskip("torchmetrics.retrieval")
    kind, settings = TORCHMETRICS[name]
    measure = getattr(retrieval, kind)(empty_target_action="skip", **settings)
    indexes = torch.arange(len(S))[:, None].expand(S.shape)
    given = torch.from_numpy(S), torch.from_numpy(truth)
    return float(measure(given[0].flatten(), given[1].flatten(), indexes=indexes.flatten()))


def ours(S: Any, truth: Any, name: str) -> float:
    scores, true = Matrix(torch.from_numpy(S)), Truth.of_mask(truth)
    if name.startswith("ndcg"):
        return ndcg(scores, true, int(name[4:]) if name[4:] else None)
    found = truth_metrics(scores, true)[name]
    return found / 100 if name in ("r1", "r5", "r10") else found


@pytest.mark.parametrize("shift", [0.0, 10.0])
@pytest.mark.parametrize("name", TORCHMETRICS)
def test_torchmetrics(name: str, shift: float) -> None:
    """Theirs leaves scores of 0 and below out, so it is asked with all of them raised; ours is the
    same for scores that are signed and for those that are raised."""
    S, truth = world("sparse")
    theirs = by_torchmetrics(S + np.float32(10), truth, name)
    assert ours(S + np.float32(shift), truth, name) == pytest.approx(theirs, abs=1e-6)


CALCULATED = {
    "precision_at_1": "r1",
    "mean_average_precision_at_r": "map_at_r",
    "r_precision": "rprecision",
    "mean_reciprocal_rank": "mrr",
}


@pytest.mark.parametrize("name", CALCULATED)
def test_accuracy_calculator_of_metric_learning(name: str) -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    random = torch.Generator().manual_seed(11)
    images = normalize(torch.randn(15, 6, generator=random))
    owner = torch.arange(45) % 15
    texts = normalize(images[owner] + 0.6 * torch.randn(45, 6, generator=random))
    asked = AccuracyCalculator(
        include=(name, "precision_at_1"), k=45, knn_func=CustomKNN(CosineSimilarity())
    )
    theirs = asked.get_accuracy(images, torch.arange(15), texts, owner, False)[name]
    found = simgrad.evaluate(images, texts, owner)[f"i2t_{CALCULATED[name]}"]
    assert found / (100 if name == "precision_at_1" else 1) == pytest.approx(theirs)


RETRIEVAL: dict[str, str] = {
    "accuracy@1": "r1", "accuracy@5": "r5", "accuracy@10": "r10", "mrr@30": "mrr", "map@30": "map",
    "ndcg@30": "ndcg",
}  # fmt: skip


@pytest.fixture(scope="module")
def by_sentence_transformers() -> tuple[dict[str, float], Any, Any]:
    evaluation = pytest.importorskip("sentence_transformers.evaluation")
    random = torch.Generator().manual_seed(12)
    texts = normalize(torch.randn(30, 5, generator=random))
    owner = torch.arange(30) % 10
    images = normalize(texts[:10] + texts[10:20] + 0.5 * torch.randn(10, 5, generator=random))

    class Stub:
        similarity_fn_name = "cosine"
        model_card_data = None

        def encode(self, names: list[str], **_: Any) -> torch.Tensor:
            side = images if names[0].startswith("q") else texts
            return side[[int(name[1:]) for name in names]]

        encode_query = encode_document = encode

    relevant = {f"q{i}": {f"d{j}" for j in range(30) if j % 10 == i} for i in range(10)}
    asked = evaluation.InformationRetrievalEvaluator(
        {f"q{i}": f"q{i}" for i in range(10)}, {f"d{j}": f"d{j}" for j in range(30)}, relevant,
        accuracy_at_k=[1, 5, 10], precision_recall_at_k=[1], mrr_at_k=[30], ndcg_at_k=[30],
        map_at_k=[30], write_csv=False,
        score_functions={"cosine": lambda a, b: torch.as_tensor(a) @ torch.as_tensor(b).T},
    )  # fmt: skip
    found = asked.compute_metrices(Stub())["cosine"]
    flat = {name: found[name.split("@")[0] + "@k"][int(name.split("@")[1])] for name in RETRIEVAL}
    return flat, images @ texts.T, owner


@pytest.mark.parametrize("name", RETRIEVAL)
def test_retrieval_evaluator_of_sentence_transformers(
    by_sentence_transformers: Any, name: str
) -> None:
    theirs, S, owner = by_sentence_transformers
    truth = (torch.arange(10)[:, None] == owner).numpy()
    assert ours(S.numpy(), truth, RETRIEVAL[name]) == pytest.approx(theirs[name], abs=1e-6)
