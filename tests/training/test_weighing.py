"""Comparing again only the pairs that got a weight: the same loss, the same gradient."""

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor

import simgrad
from simgrad.data.batches import Batch
from simgrad.data.sampling import IndexBatch
from simgrad.models import Encoded, RetrievalModel
from simgrad.models.base import vectors_of
from simgrad.objectives import Objective, Offline, Positives, TripletSH, objectives
from simgrad.runs.found_pairs import Known
from simgrad.training.weighing import loss_of_few, most, weigh, weighs_few
from tests.models.small import captions, images, small

MODELS = ("scan t-i", "scan i-t", "bfan equal", "bfan prob", "vse++ order")
IMAGES, CAPTIONS = 12, 14
HARDEST = [d.name for d in objectives if weighs_few(d.factory(), 64, 64)]
OWN = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 3])


def encoded(model: RetrievalModel, rows: int) -> tuple[Encoded, Encoded]:
    batch = captions(rows, shortest=2)  # to one word BFAN finds all regions equally relevant
    with torch.no_grad():
        image = model.encode_images(images(model.inputs, IMAGES))
        caption = model.encode_captions(batch.tokens, batch.lengths)
    for side in (image, caption):
        for part in (side.vectors, side.tokens):
            if part is not None:
                part.requires_grad_()
    return image, caption


def outside(objective: Objective, rows: int) -> Offline | None:
    if not objective.needs_offline:
        return None
    torch.manual_seed(1)
    return Offline(*(torch.rand(rows).requires_grad_() for _ in range(4)))


def slopes(loss: Tensor, *sides: Encoded | None, offline: Offline | None) -> list[Tensor]:
    parts = [p for s in sides if s is not None for p in (s.vectors, s.tokens) if p is not None]
    return list(torch.autograd.grad(loss, [*parts, *(offline or ())]))


def test_which_objectives_weigh_few() -> None:
    assert {"triplet-sh", "goal", "off-tri", "off-quin", "adap-off-quin"} <= set(HARDEST)
    assert not {"triplet", "nt-xent", "smooth-ap", "siglip"} & set(HARDEST)
    assert not weighs_few(simgrad.objective("triplet-sh"), 4, 4)  # of 16 pairs, 12 may have one


def test_what_scales_similarities_needs_all_of_them() -> None:
    @dataclasses.dataclass(eq=False, repr=False)
    class Scaled(TripletSH):
        def __post_init__(self) -> None:
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def affine(self) -> tuple[Tensor | None, Tensor | None]:
            return self.scale, None

    assert weighs_few(TripletSH(), 64, 64)
    assert not weighs_few(Scaled(), 64, 64)


def test_pairs_to_ignore_are_ignored() -> None:
    """By several processes: test_distributed.py."""
    model, objective = small("vse++"), simgrad.objective("nt-xent")
    words = captions(IMAGES, shortest=2)
    rows = np.arange(IMAGES)
    batch = Batch(
        images(model.inputs, IMAGES),
        words.tokens,
        words.lengths,
        torch.arange(IMAGES),
        IndexBatch(rows, rows, rows),
    )
    image, caption = encoded(model, IMAGES)
    ignored = torch.tensor([[0, 3], [5, 2]])
    nothing = torch.zeros(0, 2, dtype=torch.long)
    found = weigh(
        model, objective, image, caption, batch,
        pairs=False, found=Known(nothing, ignored), autocast=nullcontext,
    )  # fmt: skip
    vectors = vectors_of(image), vectors_of(caption)
    expected = objective(*vectors, batch.image_of_caption, ignore=ignored)
    torch.testing.assert_close(found, expected)
    assert not torch.isclose(expected, objective(*vectors, batch.image_of_caption))


@pytest.mark.parametrize("positives", ["diagonal", "images", "padded"])
@pytest.mark.parametrize("spec", HARDEST)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradient_are_those_of_all_pairs(name: str, spec: str, positives: str) -> None:
    model, objective = small(name), simgrad.objective(spec)
    rows = IMAGES if positives == "diagonal" else CAPTIONS
    image, caption = encoded(model, rows)
    offline = outside(objective, rows)
    pairs: Tensor | Positives | None = None if positives == "diagonal" else OWN
    if positives == "padded":
        present = torch.arange(IMAGES) < 11
        own = torch.where(OWN == 11, 2, OWN)
        pairs = Positives.of_captions(own, IMAGES, present)
    expected = objective.on(model.similarities(image, caption), pairs, offline)
    found = loss_of_few(objective, model, image, caption, pairs, offline)
    torch.testing.assert_close(found, expected)
    wanted = slopes(expected, image, caption, offline=offline)
    for ours, theirs in zip(slopes(found, image, caption, offline=offline), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("spec", HARDEST)
def test_no_batch_gives_weight_to_more_pairs(spec: str) -> None:
    objective = simgrad.objective(spec)
    for seed in range(20):
        torch.manual_seed(seed)
        S = torch.randn(IMAGES, CAPTIONS).clamp(-1, 1).round(decimals=1)  # ties, too
        result = objective.weigh(S, OWN, outside(objective, CAPTIONS))
        assert ((result.i2t + result.t2i) != 0).sum() <= most(IMAGES, CAPTIONS)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("memory", [1, 512])  # in blocks, in one piece
@pytest.mark.parametrize("name", ["scan t-i", "scan i-t", "bfan equal"])
def test_it_can_be_captured(name: str, memory: int) -> None:
    model, objective = small(name), simgrad.objective("triplet-sh")
    object.__setattr__(model.config, "memory_mib", memory)
    image, caption = (side.to("cuda") for side in encoded(model, 300))
    model.cuda()
    image = image.select(torch.arange(300, device="cuda") % IMAGES)
    leaves = [side.tokens.detach().clone().requires_grad_() for side in (image, caption)]
    image.tokens, caption.tokens = leaves

    def step() -> list[Tensor]:
        loss = loss_of_few(objective, model, image, caption, None, None)
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    torch.cuda.synchronize()  # the other stream does not wait for what made these
    with torch.cuda.stream(torch.cuda.Stream()):
        expected = [part.clone() for part in step()]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    torch.cuda.synchronize()
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-2)
