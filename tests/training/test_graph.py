"""Captured steps: their rows of numbers say what the batch says, and they train the same."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.data import Dataset, IndexBatch, Sampler
from simgrad.data.batches import Batch
from simgrad.data.sampling import Drawn, own_size
from simgrad.objectives import declare, objectives
from simgrad.runs.offline_draws import draw_of
from simgrad.runs.recipe import Recipe
from simgrad.training import train
from simgrad.training.graph import BatchLayout, Captured, padded_length
from simgrad.training.rounds import mine_run
from tests.training.lists import random_lists
from tests.training.test_step import CAPTIONER, SCAN, VSE, gradients, make


@pytest.fixture(autouse=True)
def own_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """An objective for whole rows, as the README writes one."""
    monkeypatch.setattr(objectives, "_declared", dict(objectives._declared))

    @declare("test-own")
    def hinge(similarities, positives, pairs):  # type: ignore[no-untyped-def]
        count = positives.sum(1)
        own = pairs.per_query(pairs.similarity) / count
        cost = (0.2 + similarities - own[:, None]).clamp(min=0).masked_fill(positives, 0)
        push = (cost > 0).to(cost)
        return cost.sum(1), push - (push.sum(1) / count)[:, None] * positives


@pytest.mark.parametrize("objective", ["off-tri", "adap-off-quin"])
def test_a_row_of_numbers_says_what_the_batch_says(objective: str, scenes: Dataset) -> None:
    split = scenes.split("train")
    draw = draw_of(Recipe(objective=objective, depth=30), split, random_lists(split, 30))
    layout = BatchLayout(16, 16, 16 * draw.for_each)
    plan = Sampler("pairs", 16, drop_last=True).epoch(split, 0)
    for index, plain in zip(draw.epoch(plan, 0), plan, strict=True):
        row = torch.from_numpy(layout.row(index))
        image, caption, position, present, places = torch.split(row, layout.parts())
        m = own_size(index)[1]
        assert (int(present.sum()), m) == (len(plain.images), 16)
        assert np.array_equal(image[position], plain.images[plain.image_of_caption])
        assert np.array_equal(caption[:m], plain.captions)
        wanted = index.places()
        for name, place in zip(wanted, places.view(4, -1), strict=True):
            rows, original = (image, index.images) if "image" in name else (caption, index.captions)
            assert np.array_equal(rows[place], original[wanted[name]])


def test_a_row_of_a_batch_without_draws(scenes: Dataset) -> None:
    index = Sampler("pairs", 16).epoch(scenes.split("train"), 0)[0]
    parts = torch.split(
        torch.from_numpy(BatchLayout(16, 16, 0).row(index)), BatchLayout(16, 16, 0).parts()
    )
    assert [len(part) for part in parts] == [16, 16, 16, 16, 0]
    assert np.array_equal(parts[0][: len(index.images)], index.images)
    assert np.array_equal(parts[1], index.captions)


@pytest.mark.parametrize("positives", ["images", "pairs"])
@pytest.mark.parametrize("objective", ["goal", "nt-xent", "off-tri", "adap-off-quin", "test-own"])
@pytest.mark.parametrize("model", [VSE, SCAN, CAPTIONER])
def test_a_row_of_numbers_gives_the_gradient_of_the_batch(
    model: str, objective: str, positives: Any
) -> None:
    """What a captured step does, on a CPU: padded images, draws behind a full batch."""
    if model == CAPTIONER and positives == "images":
        pytest.skip("not captured: its batch norms would count padded images")
    recipe = Recipe(objective=objective, depth=20, batch=32, positives=positives)
    step, source = make(model, recipe)
    plan = Sampler("pairs", 32).epoch(source.split, 0)[:1]
    layout, index, drawn = BatchLayout(32, 32, 0), plan[0], None
    assert len(index.images) < 32
    if step.objectives[objective].needs_offline:
        draw = draw_of(recipe, source.split, random_lists(source.split, 30))
        layout, index = BatchLayout(32, 32, 32 * draw.for_each), draw.epoch(plan, 0)[0]
    row = torch.from_numpy(layout.row(index))
    image, caption, position, present, places = torch.split(row, layout.parts())
    if layout.drawn:
        drawn = Drawn(32, 32, places.view(4, -1), layout.drawn // 32)
    features = source.gather(image, caption, source.longest(index.captions) + 2)
    nothing = IndexBatch(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
    there = present.bool() if positives == "images" else None
    rule = step.objectives[objective]
    value = step.gradient(Batch(*features, position, nothing, there, drawn), rule)
    found = gradients(step)
    step.model.zero_grad()
    torch.testing.assert_close(value, step.gradient(source.fetch(index), rule))
    for name, wanted in gradients(step).items():
        assert (found[name] - wanted).norm() <= 1e-5 * wanted.norm() + 1e-6, name


def test_what_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither batches that are worked in blocks, nor those that several processes share."""
    resident = SimpleNamespace(resident=True)

    def possible(norms: bool = False, copes: bool = True, **settings: Any) -> bool:
        model: Any = SimpleNamespace(has_batch_norms=lambda: norms, can_capture=lambda: True)
        source: Any = resident
        rule: Any = SimpleNamespace(copes_with_gaps=lambda: copes)
        recipe, device = Recipe(**settings), torch.device("cuda")
        return Captured.possible(model, source, recipe, device, [rule])

    assert possible()
    assert not possible(batch=5000)
    assert not possible(batch=1000, sampler="images")
    assert possible(batch=1000)
    assert possible(norms=True, positives="pairs")
    assert possible(norms=True, positives="images", sampler="images")
    assert not possible(norms=True, positives="images")  # these would count the padding
    assert not possible(copes=False, positives="images")
    assert possible(copes=False, positives="pairs")
    monkeypatch.setattr("simgrad.training.distributed.size", lambda: 2)
    assert not possible()


@pytest.mark.parametrize(("longest", "length"), [(1, 4), (12, 12), (13, 16), (77, 77)])
def test_captions_are_padded_to_few_lengths_that_the_network_reads(
    longest: int, length: int
) -> None:
    """CLIP reads 77 tokens: a caption cut to them must not be padded to 80."""
    assert padded_length(longest, 77) == length


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    "objective", ["goal(triplet=cir, pair=sig-ms)", "off-tri", "off-quin", "test-own"]
)
def test_captured_steps_train_like_plain_ones(
    objective: str, small: Any, scenes: Dataset, tmp_path: Path
) -> None:
    recipe = small(device="cuda", epochs=3, batch=16)
    if objective.startswith("off"):
        first = train(recipe, tmp_path / "first", dataset=scenes, quiet=True)
        mined = mine_run(first, tmp_path / "lists", 15, dataset=scenes)
        recipe = recipe.replace(
            candidates=str(mined), depth=15, first_objective="triplet", first_epochs=1
        )
    losses = []
    for graphs in (False, True):
        chosen = recipe.replace(objective=objective, graphs=graphs)
        run = train(chosen, tmp_path / str(graphs), dataset=scenes, quiet=True)
        losses.append([entry["loss"] for entry in run.history])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_network_that_is_thawed_on_the_way_is_captured_again(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(
        data="scenes(train=48, val=8, test=8, size=64)",
        model="vse++(dimension=16, word_dimension=16, backbone=random:efficientnet-lite0, "
        "finetune=true)",
        device="cuda", batch=16, epochs=1, finetune_epochs=1, finetune_lr=1e-5, positives="pairs",
    )  # fmt: skip
    shapes: list[tuple[int, ...]] = []  # of what captured steps read
    capture = Captured._capture

    def noted(steps: Captured, *given: Any) -> Any:
        shapes.append(steps.source.image_shape)
        return capture(steps, *given)

    monkeypatch.setattr(Captured, "_capture", noted)
    losses = []
    for graphs in (False, True):
        run = train(recipe.replace(graphs=graphs), tmp_path / str(graphs), quiet=True)
        losses.append([entry["loss"] for entry in run.history])
    assert {len(shape) for shape in shapes} == {1, 3}  # features, then pictures
    # One epoch each, and a low rate: at 1e-4 two runs without any captured step were 1.4 % apart
    # after the second.
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
