"""Hard negatives: lists and scores of sentence-transformers' `mine_hard_negatives`."""

from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

import simgrad

QUERIES, TEXTS = 12, 30


class Vectors:
    """What `mine_hard_negatives` asks of a model: the vectors of texts."""

    similarity_fn_name = "cosine"
    device = torch.device("cpu")

    def __init__(self, images: torch.Tensor, texts: torch.Tensor) -> None:
        self.sides = {"q": images, "d": texts}

    def encode(self, names: list[str], **_: Any) -> torch.Tensor:
        return torch.stack([self.sides[name[0]][int(name[1:])] for name in names])

    encode_query = encode_document = encode

    def similarity(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b.T

    def similarity_pairwise(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).sum(1)


def world(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """One text for each of the queries; the other texts are nobody's: a corpus."""
    random = torch.Generator().manual_seed(seed)
    images = normalize(torch.randn(QUERIES, 5, generator=random), dim=1)
    texts = normalize(torch.randn(TEXTS, 5, generator=random), dim=1)
    texts[:QUERIES] = normalize(images + 0.5 * texts[:QUERIES], dim=1)
    return images, texts


SETTINGS: list[dict[str, Any]] = [
    {},
    {"range_min": 1},
    {"range_min": 5},
    {"range_max": 10},
    {"range_min": 2, "range_max": 9},
    {"max_score": 0.8},
    {"max_score": 0.5},
    {"max_score": -0.1},
    {"min_score": 0.1},
    {"min_score": -0.2, "max_score": 0.6},
    {"absolute_margin": 0.0},
    {"absolute_margin": 0.1},
    {"absolute_margin": 0.5},
    {"relative_margin": 0.0},
    {"relative_margin": 0.05},
    {"relative_margin": 0.5},
    {"absolute_margin": 0.1, "range_min": 1},
    {"relative_margin": 0.05, "range_min": 1},
    {"absolute_margin": 0.1, "max_score": 0.6},
    {"relative_margin": 0.2, "min_score": 0.0, "range_min": 1},
]


def theirs(images: torch.Tensor, texts: torch.Tensor, settings: dict[str, Any]) -> dict[int, Any]:
    """By query: its negatives, the hardest first, and their scores."""
    util = pytest.importorskip("sentence_transformers.util")
    datasets = pytest.importorskip("datasets")
    asked = datasets.Dataset.from_dict(
        {
            "anchor": [f"q{i}" for i in range(QUERIES)],
            "positive": [f"d{i}" for i in range(QUERIES)],
        }
    )
    found = util.mine_hard_negatives(
        asked, Vectors(images, texts), corpus=[f"d{i}" for i in range(len(texts))],
        num_negatives=4, output_format="labeled-list", output_scores=True, verbose=False,
        **({"range_max": len(texts) - 1} | settings),
    )  # fmt: skip
    lists: dict[int, Any] = {}
    for row in found:
        negatives = [int(name[1:]) for name in row["positive"][1:]]
        lists[int(row["anchor"][1:])] = (
            negatives,
            row["scores" if "scores" in row else "score"][1:],
        )
    return lists


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_lists_and_scores(settings: dict[str, Any]) -> None:
    images, texts = world()
    owner = torch.tensor([*range(QUERIES), *[-1] * (TEXTS - QUERIES)])
    found = simgrad.mine(images, texts, owner, depth=4, scores=True, **settings)
    wanted = theirs(images, texts, settings)
    assert wanted  # the filters leave something
    assert found.i2t_scores is not None
    for query, (row, scores) in enumerate(zip(found.i2t, found.i2t_scores, strict=True)):
        negatives, similar = wanted.get(query, ([], []))
        assert row[row >= 0].tolist() == negatives, query
        assert scores[row >= 0].tolist() == pytest.approx(similar, abs=1e-6)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_other_direction(seed: int) -> None:
    """Theirs looks from the first column alone; exchanged, it is our other list."""
    images, texts = (x[:QUERIES] for x in world(seed))
    wanted = theirs(texts, images, {"relative_margin": 0.05})
    found = simgrad.mine(images, texts, depth=4, relative_margin=0.05)
    for query, row in enumerate(found.t2i):
        assert row[row >= 0].tolist() == wanted.get(query, ([], []))[0]
