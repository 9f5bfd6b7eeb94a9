"""Where ours and theirs differ by design: the table says why, and each line is worked out.

A difference is proved twice: the numbers are not the same, and what the reason says turns one into
the other. `tests/peers` holds no other difference.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

import simgrad
from simgrad.evaluation.protocols import Protocol
from simgrad.evaluation.scores import Matrix
from simgrad.evaluation.truth import Truth, ndcg, truth_metrics
from simgrad.integrations import MetricLearningLoss
from tests.peers.batches import groups, pairs
from tests.peers.test_contrastive import both_ways, ranking
from tests.peers.test_metrics import by_ranx, by_torchmetrics, ranx, world
from tests.peers.test_triplets import mined, summed

__all__ = ["ranx"]

DIFFERENCES = {
    "PML: the same tensor as labels and ref_labels": "theirs takes it for one batch compared with "
    "itself, finds no positive beside the query, and gives 0.0; ours never asks whether two "
    "objects are one.",
    "PML: NTXentLoss with several positives": "theirs leaves a query's other positives out of the "
    "denominator and averages over pairs; ours is a softmax over all candidates, averaged over "
    "queries (SupCon), so that a picture with many captions counts once.",
    "PML: TripletMarginLoss averages over what is not 0": "theirs divides by the open triplets, "
    "so the gradient of one triplet grows as others are solved; ours is the published sum.",
    "PML: BatchHardMiner": "theirs keeps the hardest positive of a query alone; ours asks every "
    "positive pair for its margin to the hardest negative, as VSE++ does.",
    "PML: MultiSimilarityLoss": "ours named multi-similarity is GOAL's cell of the hardest "
    "negative with its relative weights, no sum over all pairs.",
    "PML: SmoothAPLoss reads groups from sizes": "theirs cuts the batch into as many groups as a "
    "label has members; it is the loss of its labels only if groups and members are as many.",
    "ST: MultipleNegativesRankingLoss looks one way": "theirs looks from the first column alone; "
    "ours is the mean of both directions, as image-caption retrieval is measured in both.",
    "open_clip: SigLIP with several captions": "theirs has positives on the diagonal alone and "
    "pushes an image's other captions away; ours takes them as positives.",
    "torchmetrics: scores of 0 and below": "theirs counts a hit only if its score is above 0; a "
    "cosine below 0 is a score like any other here.",
    "torchmetrics: nDCG of ties": "theirs gives tied candidates the mean of their places; ours "
    "breaks ties against the model, so that one which tells nothing apart is worth nothing.",
    "ranx: recall@k": "theirs is the share of the true items that were found; the field's R@K is "
    "whether any was, which ranx calls hit_rate.",
    "ranx: ties": "theirs sorts, and a tie goes to whoever comes first; ours to the rival.",
    "ranx: mAP@k over all true items": "theirs divides by all true items, so five captions can "
    "never fill mAP@3; ours divides by min(true items, k).",
    "vsepp: rsum of five folds": "vsepp prints it six times too large; ours is a sum of six "
    "recalls, 600 at most, with folds as without.",
}

Proof = Callable[[], tuple[float, float, float]]  # ours, theirs, theirs by way of ours
PROOFS: dict[str, Proof] = {}


def proves(name: str) -> Callable[[Proof], Proof]:
    def kept(proof: Proof) -> Proof:
        PROOFS[name] = proof
        return proof

    return kept


def number(value: Any) -> float:
    return float(value.detach() if isinstance(value, Tensor) else value)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_what_its_reason_says(ranx: Any, name: str) -> None:
    if name.startswith("PML"):
        pytest.importorskip("pytorch_metric_learning")
    ours, theirs, explained = (number(x) for x in PROOFS[name]())
    assert ours != pytest.approx(theirs, rel=1e-3, abs=1e-6)
    assert explained == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_every_difference_is_proved() -> None:
    assert set(PROOFS) == set(DIFFERENCES)


@proves("PML: the same tensor as labels and ref_labels")
def _() -> Any:
    batch, labels = pairs("0"), torch.arange(16)
    from pytorch_metric_learning.losses import NTXentLoss

    asked = {"ref_emb": batch.texts, "ref_labels": labels}
    theirs = NTXentLoss(temperature=0.1)(batch.images, labels, **asked)
    return MetricLearningLoss("nt-xent(tau=0.1)")(batch.images, labels, **asked), theirs, 0.0


@proves("PML: NTXentLoss with several positives")
def _() -> Any:
    from pytorch_metric_learning.losses import NTXentLoss

    batch = groups("uneven")
    total = 0.0
    for S, mask in ((batch.similarities, batch.mask), (batch.similarities.T, batch.mask.T)):
        e, values = (S / 0.2).exp(), []
        for q, p in mask.nonzero().tolist():
            values.append(-(e[q, p] / (e[q, p] + e[q][~mask[q]].sum())).log())
        total = total + torch.stack(values).mean() / 2
    ours = simgrad.objective("nt-xent(tau=0.2)")(batch.images, batch.texts, batch.owner)
    return ours, both_ways(NTXentLoss(temperature=0.2), batch), total


@proves("PML: TripletMarginLoss averages over what is not 0")
def _() -> Any:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.losses import TripletMarginLoss

    batch, objective = pairs("0"), simgrad.objective("triplet(margin=0.2)")
    theirs = both_ways(TripletMarginLoss(margin=0.2, distance=CosineSimilarity()), batch)
    labels = batch.labels
    one_way = [
        summed(0.2)(batch.images, labels[0], ref_emb=batch.texts, ref_labels=labels[1]),
        summed(0.2)(batch.texts, labels[1], ref_emb=batch.images, ref_labels=labels[0]),
    ]
    weights = objective.weigh(batch.similarities)
    # In our weights a positive has minus the number of its open triplets.
    open_ones = [-w.diagonal().sum() for w in (weights.i2t, weights.t2i)]
    explained = sum(v / n for v, n in zip(one_way, open_ones, strict=True)) / 2
    return objective(batch.images, batch.texts), theirs, explained


@proves("PML: BatchHardMiner")
def _() -> Any:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.miners import BatchHardMiner

    batch, (labels, others) = groups("uneven"), groups("uneven").labels
    miner, theirs = BatchHardMiner(distance=CosineSimilarity()), 0.0
    for x, a, y, b in (
        (batch.images, labels, batch.texts, others),
        (batch.texts, others, batch.images, labels),
    ):
        theirs = theirs + summed(0.5)(x, a, miner(x.detach(), a, y.detach(), b), y, b)
    S, mask = batch.similarities, batch.mask
    explained = sum(
        torch.relu(
            0.5
            + side.masked_fill(own, -torch.inf).amax(1)
            - side.masked_fill(~own, torch.inf).amin(1)
        ).sum()
        for side, own in ((S, mask), (S.T, mask.T))
    )
    ours = simgrad.objective("triplet-sh(margin=0.5)")(batch.images, batch.texts, batch.owner)
    assert number(ours) == pytest.approx(number(mined(0.5, batch)))
    return ours, theirs, explained


@proves("PML: MultiSimilarityLoss")
def _() -> Any:
    from pytorch_metric_learning.losses import MultiSimilarityLoss

    batch = pairs("0")
    theirs = both_ways(MultiSimilarityLoss(alpha=2, beta=10, base=0.5), batch)
    S, total = batch.similarities, 0.0
    for side in (S, S.T):
        near = (10 * (side - 0.5)).exp().fill_diagonal_(0).sum(1)
        far = (-2 * (side.diagonal() - 0.5)).exp()
        total = total + (torch.log1p(far) / 2 + torch.log1p(near) / 10).mean() / 2
    ours = simgrad.objective("multi-similarity").weigh(S)
    # The hardest negative alone has a weight.
    assert (ours.i2t > 0).sum(1).max() == 1
    return ours.value, theirs, total


@proves("PML: SmoothAPLoss reads groups from sizes")
def _() -> Any:
    from pytorch_metric_learning.losses import SmoothAPLoss

    vectors = torch.randn(30, 16, generator=torch.Generator().manual_seed(42))
    labels, read = torch.arange(30) // 6, torch.arange(30) // 5
    S, objective = (
        normalize(vectors) @ normalize(vectors).T,
        simgrad.objective("smooth-ap(tau=0.1)"),
    )
    ours, explained = (objective.on(S, x[:, None] == x) for x in (labels, read))
    return ours, SmoothAPLoss(temperature=0.1)(vectors, labels), explained


@proves("ST: MultipleNegativesRankingLoss looks one way")
def _() -> Any:
    S = pairs("0").similarities.detach()
    theirs = ranking(scale=20.0, similarity_fct=lambda a, b: S).compute_loss_from_embeddings(
        [torch.zeros(16, 1)] * 2, None
    )
    objective = simgrad.objective("nt-xent(tau=0.05)")
    ours = objective.weigh(S).value
    other = torch.nn.functional.cross_entropy(20 * S.T, torch.arange(16))
    return ours, theirs, 2 * ours - other


@proves("open_clip: SigLIP with several captions")
def _() -> Any:
    batch = groups("0")
    first, owner = batch.texts[:6], torch.tensor([0, 0, 1, 1, 2, 2])  # six texts of three images
    S = normalize(batch.images) @ normalize(first).T
    sign = 2 * torch.eye(6) - 1
    theirs = -torch.nn.functional.logsigmoid(sign * (10 * S - 10)).sum() / 6
    objective = simgrad.objective("siglip(learned=false)")
    mask = owner[:, None] == owner
    return objective.on(S, mask), theirs, objective.on(S)


@proves("torchmetrics: scores of 0 and below")
def _() -> Any:
    S, truth = world("signed")
    S = S - np.float32(1.5)
    ours = truth_metrics(Matrix(torch.from_numpy(S)), Truth.of_mask(truth))["map"]
    # Ours, with the true items below 0 found at no place, over those that are left.
    kept = truth & (S > 0)
    some = kept.any(1)
    found = truth_metrics(Matrix(torch.from_numpy(S[some])), Truth.of_mask(kept[some]))["map"]
    return ours, by_torchmetrics(S, truth, "map"), found * some.mean()


@proves("torchmetrics: nDCG of ties")
def _() -> Any:
    S, truth = np.ones((1, 4), np.float32), np.array([[True, False, False, False]])
    ours = ndcg(Matrix(torch.from_numpy(S)), Truth.of_mask(truth))
    assert ours == pytest.approx(1 / np.log2(5))  # the last place
    return ours, by_torchmetrics(S, truth, "ndcg"), np.mean(1 / np.log2(np.arange(2, 6)))


@proves("ranx: recall@k")
def _() -> Any:
    import ranx as package

    S, truth = world("several")
    ours = truth_metrics(Matrix(torch.from_numpy(S)), Truth.of_mask(truth))["r5"] / 100
    first = np.argsort(-S, axis=1)[:, :5]
    explained = np.mean(np.take_along_axis(truth, first, 1).sum(1) / truth.sum(1))
    return ours, by_ranx(package, S, truth, "recall@5"), explained


@proves("ranx: ties")
def _() -> Any:
    import ranx as package

    S, truth = np.zeros((1, 5), np.float32), np.eye(5, dtype=bool)[:1]
    ours = truth_metrics(Matrix(torch.from_numpy(S)), Truth.of_mask(truth))["mrr"]
    assert ours == pytest.approx(1 / 5)
    return ours, by_ranx(package, S, truth, "mrr"), 1.0


@proves("ranx: mAP@k over all true items")
def _() -> Any:
    import ranx as package

    S, truth = world("several")
    ours = truth_metrics(Matrix(torch.from_numpy(S)), Truth.of_mask(truth))["map5"]
    explained = np.mean(
        [
            truth_metrics(Matrix(torch.from_numpy(s[None])), Truth.of_mask(t[None]))["map5"]
            * min(t.sum(), 5)
            / t.sum()
            for s, t in zip(S, truth, strict=True)
        ]
    )
    return ours, by_ranx(package, S, truth, "map@5"), explained


@proves("vsepp: rsum of five folds")
def _() -> Any:
    images = torch.eye(25)
    folds = Protocol("folds", "images", folds=5)
    texts = images.repeat_interleave(5, 0)
    found = simgrad.evaluate(images, texts, torch.arange(125) // 5, protocol=folds)
    return found.rsum, 6 * 600.0, 6 * found.rsum
