"""Filters mean what they mean in sentence-transformers; rescoring; statistics."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation.scores import Embeddings, Matrix
from simgrad.mining.filters import Filters
from simgrad.mining.mine import mine_scores

N, K = 40, 3  # images, captions of each


def world() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    owner = torch.arange(N * K) // K
    images = normalize(torch.randn(N, 6), dim=1)
    texts = normalize(images[owner] + 0.5 * torch.randn(N * K, 6), dim=1)
    return images, texts, owner


class Stub:
    """What `mine_hard_negatives` asks of a model: the vectors of texts."""

    similarity_fn_name = "cosine"
    device = torch.device("cpu")

    def __init__(self, vectors: dict[str, torch.Tensor]) -> None:
        self.vectors = vectors

    def encode(self, texts: list[str], **_: Any) -> torch.Tensor:
        return torch.stack([self.vectors[text] for text in texts])

    encode_query = encode_document = encode

    def similarity(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b.T

    def similarity_pairwise(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).sum(1)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"absolute_margin": 0.1},
        {"relative_margin": 0.05},
        {"relative_margin": 0.3, "range_min": 2},
        {"max_score": 0.4, "min_score": 0.1},
        {"absolute_margin": 0.0, "max_score": 0.5, "range_min": 1},
    ],
)
def test_filters_agree_with_sentence_transformers(settings: dict[str, Any]) -> None:
    """Image -> caption, several positives; their own function, on the same vectors."""
    util = pytest.importorskip("sentence_transformers.util")
    datasets = pytest.importorskip("datasets")
    images, texts, owner = world()
    vectors = {f"image {i}": v for i, v in enumerate(images)}
    vectors |= {f"caption {i}": v for i, v in enumerate(texts)}
    pairs = datasets.Dataset.from_dict(
        {
            "anchor": [f"image {i}" for i in owner.tolist()],
            "positive": [f"caption {i}" for i in range(N * K)],
        }
    )
    theirs = util.mine_hard_negatives(
        pairs,
        Stub(vectors),
        range_max=N * K - K,
        num_negatives=4,
        output_format="labeled-list",
        verbose=False,
        **settings,
    )
    wanted: dict[str, set[str]] = {}
    for row in theirs:
        wanted.setdefault(row["anchor"], set()).update(row["positive"][1:])
    found = simgrad.mine(images, texts, owner, depth=4, **settings)
    ours = {
        f"image {i}": {f"caption {c}" for c in row if c >= 0} for i, row in enumerate(found.i2t)
    }
    assert {k: v for k, v in ours.items() if v} == wanted
    assert wanted  # the filters leave something


def test_a_window_counts_candidates_before_filters() -> None:
    images, texts, owner = world()
    whole = simgrad.mine(images, texts, owner, depth=10, scores=True)
    cut = simgrad.mine(images, texts, owner, depth=10, range_max=10, max_score=0.5, scores=True)
    assert whole.t2i_scores is not None
    for before, scores, after in zip(whole.t2i, whole.t2i_scores, cut.t2i, strict=True):
        assert after[after >= 0].tolist() == before[scores <= 0.5].tolist()


def test_half_precision_lets_nothing_above_the_ceiling() -> None:
    images, texts, owner = world()
    found = simgrad.mine(images, texts, owner, 20, relative_margin=0.1, half=True, scores=True)
    own = (images[owner] * texts).sum(1).numpy()
    assert found.t2i_scores is not None
    assert (found.t2i_scores <= (own - 0.1 * np.abs(own))[:, None] + 1e-6).all()


def test_others_decide_which_candidates_are_kept() -> None:
    images, texts, owner = world()
    torch.manual_seed(2)
    other = torch.rand(N, N * K)
    filters = Filters(range_max=12, max_score=0.7)
    found = mine_scores(Embeddings(images, texts), owner.numpy(), 5, filters, rescore=Matrix(other))
    S = images @ texts.T
    S[owner, torch.arange(N * K)] = -torch.inf
    for image, row in enumerate(found.i2t):
        first = S[image].topk(12).indices
        allowed = first[other[image, first] <= 0.7]
        wanted = allowed[other[image, allowed].argsort(descending=True)][:5]
        assert row[row >= 0].tolist() == wanted.tolist()
    for caption, row in enumerate(found.t2i):
        first = S[:, caption].topk(12).indices
        allowed = first[other[first, caption] <= 0.7]
        wanted = allowed[other[allowed, caption].argsort(descending=True)][:5]
        assert row[row >= 0].tolist() == wanted.tolist()
    with pytest.raises(InputError, match="cannot rescore"):
        mine_scores(Embeddings(images, texts), owner.numpy(), 5, rescore=Matrix(other[:5]))


def test_statistics_say_what_a_filter_removes() -> None:
    images, texts, owner = world()
    found = mine_scores(Embeddings(images, texts), owner.numpy(), 7, Filters(max_score=0.6))
    told = found.info["statistics"]["t2i"]
    S = images @ texts.T
    own = S[owner, torch.arange(N * K)]
    S[owner, torch.arange(N * K)] = -torch.inf
    hardest = S.T.topk(7).values
    removed = {line["filter"]: line["removed"] for line in told["filters"]}
    assert removed["max_score 0.6"] == pytest.approx(float((hardest > 0.6).float().mean()))
    within = hardest > (own - 0.05 * own.abs())[:, None]
    assert removed["relative_margin 0.05"] == pytest.approx(float(within.float().mean()))
    assert told["positive"]["mean"] == pytest.approx(float(own.mean()), abs=1e-6)
    assert told["negative"]["max"] <= 0.6


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"range_min": -1}, "range_min"), ({"range_min": 5, "range_max": 5}, "range_max"),
     ({"relative_margin": 95.0}, "relative_margin is 95.0; it is a share")],
)  # fmt: skip
def test_filters_that_make_no_sense_are_refused(settings: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        Filters(**settings)
