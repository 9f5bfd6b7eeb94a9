"""A softmax over candidates: NT-Xent, SupCon, MNRL, CLIP; and a sigmoid for each pair, SigLIP."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize

import simgrad
from simgrad.integrations import ClipLoss, MetricLearningLoss, SentenceTransformerLoss
from tests.peers.batches import GROUPS, PAIRS, Batch, groups, pairs


def same(batch: Batch, ours: Tensor, theirs: Tensor) -> None:
    """Equal values, and equal gradients of images and texts."""
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    for one, other in zip(batch.gradients(ours), batch.gradients(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def both_ways(loss: Callable[..., Tensor], batch: Batch) -> Tensor:
    """Half the sum of a loss of pytorch-metric-learning from images and from texts."""
    labels, others = batch.labels
    return 0.5 * (
        loss(batch.images, labels, ref_emb=batch.texts, ref_labels=others)
        + loss(batch.texts, others, ref_emb=batch.images, ref_labels=labels)
    )


@pytest.mark.parametrize("tau", [0.07, 0.2, 1.0])
@pytest.mark.parametrize("name", PAIRS)
def test_nt_xent_of_metric_learning(name: str, tau: float) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    batch = pairs(name)
    ours = simgrad.objective(f"nt-xent(tau={tau})")(batch.images, batch.texts)
    same(batch, ours, both_ways(losses.NTXentLoss(temperature=tau), batch))


@pytest.mark.parametrize("tau", [0.1, 0.5])
@pytest.mark.parametrize("name", [*GROUPS, "nobodys"])
def test_supcon_of_metric_learning_is_nt_xent_with_several_positives(name: str, tau: float) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    batch = groups(name)
    ours = simgrad.objective(f"nt-xent(tau={tau})")(batch.images, batch.texts, batch.owner)
    same(batch, ours, both_ways(losses.SupConLoss(temperature=tau), batch))


@pytest.mark.parametrize("name", [*GROUPS, "nobodys"])
def test_labels_mean_what_they_mean_in_metric_learning(name: str) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    batch = groups(name)
    labels, others = (x * 7 + 3 for x in batch.labels)  # their numbers mean nothing
    ours = MetricLearningLoss("nt-xent(tau=0.3)")(batch.images, labels, None, batch.texts, others)
    same(batch, ours, both_ways(losses.SupConLoss(temperature=0.3), batch))


# --- sentence-transformers


class Columns(nn.Module):
    """Stands for a SentenceTransformer: a column holds its own vectors."""

    def forward(self, column: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": column["vectors"]}


def ranking(**settings: Any) -> Any:
    """MultipleNegativesRankingLoss, without a model."""
    losses = pytest.importorskip("sentence_transformers.losses")
    return losses.MultipleNegativesRankingLoss(Columns(), **settings)


def as_columns(*vectors: Tensor) -> list[dict[str, Tensor]]:
    return [{"vectors": x} for x in vectors]


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("name", PAIRS)
def test_symmetric_ranking_of_sentence_transformers(name: str, scale: float) -> None:
    losses = pytest.importorskip("sentence_transformers.losses")
    batch = pairs(name)
    columns = as_columns(batch.images, batch.texts)
    theirs = losses.MultipleNegativesSymmetricRankingLoss(Columns(), scale=scale)
    ours = SentenceTransformerLoss(Columns(), f"nt-xent(tau={1 / scale})")
    same(batch, ours(columns), theirs(columns, None))


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("name", PAIRS)
def test_ranking_of_sentence_transformers_is_one_direction(name: str, scale: float) -> None:
    """Theirs looks from the first column; it is the weights that ours gives to image queries."""
    S = pairs(name).similarities.detach().requires_grad_()
    theirs = cross_entropy(scale * S, torch.arange(len(S)))
    asked = ranking(scale=scale, similarity_fct=lambda a, b: S).compute_loss_from_embeddings(
        [torch.zeros(len(S), 1, dtype=S.dtype)] * 2, None
    )
    torch.testing.assert_close(asked, theirs)
    weights = simgrad.objective(f"nt-xent(tau={1 / scale})").weigh(S.detach())
    torch.testing.assert_close(2 * weights.i2t, torch.autograd.grad(asked, S)[0])


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_hard_negatives_of_sentence_transformers(scale: float, columns: int) -> None:
    """Further columns are pushed away by every query, and are nobody's."""
    batch = pairs("0")
    random = torch.Generator().manual_seed(5)
    hard = torch.randn(columns, 16, 8, generator=random, dtype=torch.double)
    given = as_columns(batch.images, batch.texts, *hard)
    both = ("query_to_doc", "doc_to_query")
    theirs = ranking(scale=scale, directions=both, partition_mode="per_direction")(given, None)
    ours = SentenceTransformerLoss(Columns(), f"nt-xent(tau={1 / scale})")(given)
    same(batch, ours, theirs)


# --- open_clip


def logits(batch: Batch, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    S = scale * normalize(batch.images) @ normalize(batch.texts).T
    return S if bias is None else S + bias


@pytest.mark.parametrize("value", [1.0, 14.3, 100.0])
@pytest.mark.parametrize("name", PAIRS)
def test_clips_loss(name: str, value: float) -> None:
    batch, scale = pairs(name), torch.tensor(value, dtype=torch.double, requires_grad=True)
    every = torch.arange(len(batch.texts))
    L = logits(batch, scale)
    theirs = (cross_entropy(L, every) + cross_entropy(L.T, every)) / 2
    ours = ClipLoss()(batch.images, batch.texts, scale)
    assert isinstance(ours, Tensor)
    same(batch, ours, theirs)
    ours, theirs = ClipLoss()(batch.images, batch.texts, scale), logits(batch, scale)
    theirs = (cross_entropy(theirs, every) + cross_entropy(theirs.T, every)) / 2
    found, wanted = (torch.autograd.grad(x, scale)[0] for x in (ours, theirs))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("value", "shift"), [(10.0, -10.0), (1.0, 0.0), (117.3, -12.9)])
@pytest.mark.parametrize("name", PAIRS)
def test_siglips_loss(name: str, value: float, shift: float) -> None:
    batch = pairs(name)
    scale, bias = (torch.tensor(x, dtype=torch.double, requires_grad=True) for x in (value, shift))
    sign = 2 * torch.eye(len(batch.texts), dtype=torch.double) - 1
    theirs = -logsigmoid(sign * logits(batch, scale, bias)).sum() / len(batch.texts)
    ours = ClipLoss("siglip")(batch.images, batch.texts, scale, bias)
    assert isinstance(ours, Tensor)
    torch.testing.assert_close(ours, theirs)
    learned = [batch.images, batch.texts, scale, bias]
    for one, other in zip(
        torch.autograd.grad(ours, learned), torch.autograd.grad(theirs, learned), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
