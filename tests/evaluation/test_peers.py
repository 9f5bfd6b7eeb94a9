"""The same numbers as the packages that others use."""

import numpy as np
import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation.coco import evaluate_coco
from simgrad.evaluation.scores import Embeddings, Matrix
from simgrad.evaluation.truth import Truth, truth_metrics


@pytest.fixture(scope="module")
def rankings():
    """Random embeddings of COCO's test set, good enough that no metric is zero."""
    eccv_caption = pytest.importorskip("eccv_caption")
    gold = eccv_caption.Metrics()
    caption_ids = [int(i) for i in gold.coco_ids]
    image_of = {c: images[0] for c, images in gold.coco_gts["t2i"].items()}
    image_ids = sorted({image_of[c] for c in caption_ids})  # another order than the test list's
    row = {image: i for i, image in enumerate(image_ids)}
    random = torch.Generator().manual_seed(0)
    caption_ids = [caption_ids[i] for i in torch.randperm(25000, generator=random)]
    images = torch.randn(5000, 24, generator=random)
    pairing = torch.tensor([row[image_of[c]] for c in caption_ids])
    noise = torch.randn(25000, 24, generator=random)
    images = torch.nn.functional.normalize(images)
    captions = torch.nn.functional.normalize(images[pairing] + 0.22 * noise)
    return gold, image_ids, caption_ids, images, captions


def top(queries, candidates, ids, number):
    """Ids of the best candidates of each query, by a sort of its own."""
    best = [(part @ candidates.T).topk(number).indices for part in queries.split(1000)]
    table = np.asarray(ids)[torch.cat(best).numpy()]
    return table.tolist()


@pytest.mark.long
def test_eccv_caption_agrees(rankings):
    gold, image_ids, caption_ids, images, captions = rankings
    # 300 of the first: enough for every positive asked for, and for ten of any fold of a fifth.
    i2t = dict(zip(image_ids, top(images, captions, caption_ids, 300), strict=True))
    t2i = dict(zip(caption_ids, top(captions, images, image_ids, 300), strict=True))
    wanted = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls")
    expected = gold.compute_all_metrics(i2t, t2i, target_metrics=wanted, Ks=(1, 5, 10))
    expected |= gold.compute_all_metrics(
        i2t, t2i, target_metrics=("eccv_r1", "eccv_map_at_r", "eccv_rprecision"), Ks=(1,)
    )
    found = evaluate_coco(Embeddings(images, captions), image_ids, caption_ids)
    compared = 0
    for name, by_direction in expected.items():
        for direction, value in by_direction.items():
            collection, _, metric = name.partition("_")
            if collection == "coco":
                size, _, metric = metric.partition("_")
                collection = f"coco_{size}"
            scale = 1.0 if metric in ("map_at_r", "rprecision") else 100.0
            ours = found[f"{collection}_{direction}_{metric}"]
            assert ours == pytest.approx(scale * value, abs=1e-9), (name, direction)
            assert value > 0.02
            compared += 1
    assert compared == 2 * (3 * 3 + 3)
    # How many first hits that are not the query's own are right by the collections.
    for name, lists in (("cxc", gold.cxc_gts), ("eccv", gold.eccv_gts)):
        for direction, ranked in (("i2t", i2t), ("t2i", t2i)):
            judged = {
                int(query): {int(c) for c in true} for query, true in lists[direction].items()
            }
            own = {int(q): {int(c) for c in t} for q, t in gold.coco_gts[direction].items()}
            wrong = [q for q in judged if ranked[q][0] not in own[q]]
            right = sum(ranked[q][0] in judged[q] for q in wrong)
            assert wrong
            assert found[f"{name}_{direction}_errors_right"] == pytest.approx(
                100 * right / len(wrong)
            )


def test_coco_ids_that_are_missing(rankings):
    _, image_ids, caption_ids, images, captions = rankings
    scores = Embeddings(images, captions)
    with pytest.raises(InputError, match="caption ids of COCO"):
        evaluate_coco(scores, image_ids, [0, *caption_ids[1:]])


@pytest.fixture(scope="module")
def ranx():
    """Without its compiler, which takes half a minute for a few small lists."""
    numba = pytest.importorskip("numba")
    before, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, True
    yield pytest.importorskip("ranx")
    numba.config.DISABLE_JIT = before


def by_ranx(ranx, similarities, truth, measures):
    queries = [q for q in range(len(truth)) if truth[q].any()]
    qrels = {f"q{q}": {f"d{d}": 1 for d in np.flatnonzero(truth[q])} for q in queries}
    run = {f"q{q}": {f"d{d}": s for d, s in enumerate(similarities[q])} for q in queries}
    return ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), measures)


NAMES = {
    "hit_rate@1": "r1",
    "hit_rate@5": "r5",
    "hit_rate@10": "r10",
    "map": "map",
    "mrr": "mrr",
    "r-precision": "rprecision",
}


def test_ranx_agrees(ranx):
    random = np.random.default_rng(5)
    similarities = random.normal(size=(20, 60))  # signed, no ties
    pairing = random.permutation(np.arange(60) % 20)
    found = simgrad.evaluate_similarities(similarities, pairing)
    truth = np.arange(20)[:, None] == pairing
    for direction, matrix, mask in (
        ("i2t", similarities, truth),
        ("t2i", similarities.T, truth.T),
    ):
        expected = by_ranx(ranx, matrix, mask, list(NAMES))
        for measure, name in NAMES.items():
            scale = 100 if measure.startswith("hit") else 1
            assert found[f"{direction}_{name}"] == pytest.approx(scale * expected[measure]), measure


def test_ranx_agrees_on_many_positives(ranx):
    random = np.random.default_rng(6)
    similarities = random.normal(size=(15, 40))
    mask = random.random((15, 40)) < 0.15
    mask[3] = False  # a query without any positive is left out
    found = truth_metrics(Matrix(torch.tensor(similarities)), Truth.of_mask(mask))
    expected = by_ranx(ranx, similarities, mask, list(NAMES))
    for measure, name in NAMES.items():
        scale = 100 if measure.startswith("hit") else 1
        assert found[name] == pytest.approx(scale * expected[measure]), measure
