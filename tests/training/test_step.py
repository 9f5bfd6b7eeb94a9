"""A step: GradCache, AOQ's draws, schedules and half precision against the plain way."""

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.analysis import attention
from simgrad.core.errors import InputError
from simgrad.data import Sampler, Split, open_dataset
from simgrad.data.batches import Source
from simgrad.data.vocabulary import Vocabulary
from simgrad.mining import Candidates, mine
from simgrad.models import Inputs, build
from simgrad.objectives import objective, objectives
from simgrad.runs.offline_draws import draw_of
from simgrad.runs.recipe import Recipe
from simgrad.training.loop import Step
from simgrad.training.observe import observe
from simgrad.training.optimizing import moment
from tests.training.lists import random_lists

DATA = {
    "vse++(dimension=16, word_dimension=8)": "scenes(train=40, val=5, test=5, features=global)",
    "scan(dimension=16, word_dimension=8)": "scenes(train=40, val=5, test=5, features=regions)",
    "vsrn(dimension=16, word_dimension=8, layers=1, batch_norm=true, captioner=true, "
    "captioner_dimension=8, "
    "captioner_dropout=0)": "scenes(train=40, val=5, test=5, features=regions)",
}


@cache
def read(model: str) -> tuple[Split, Vocabulary]:
    split = open_dataset(DATA[model]).split("train")
    return split, Vocabulary.build(split.captions, min_count=1)


def make(model: str, recipe: Recipe) -> tuple[Step, Source]:
    split, vocabulary = read(model)
    assert split.features is not None
    shape = split.features.shape
    kind: Any = "features" if len(shape) == 1 else "regions"
    torch.manual_seed(0)
    built = build(model, Inputs(kind, shape, len(vocabulary)))
    return Step(built, recipe, torch.device("cpu")), Source(split, vocabulary, resident=True)


def gradients(step: Step) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in step.model.named_parameters() if p.grad is not None}


VSE, SCAN, CAPTIONER = DATA
PLAIN = [d.name for d in objectives if not d.factory.drawn_for_each]  # type: ignore[attr-defined]
# Sets of vectors are cached the same way whatever the objective: one is enough for them.
CACHED = [(VSE, name, micro) for name in PLAIN for micro in (1, 7, 64)]
CACHED += [(SCAN, "triplet-sh", micro) for micro in (7, 64)]


@pytest.mark.parametrize(("model", "name", "micro"), CACHED)
def test_gradcache_gives_the_gradient_of_the_whole_batch(model: str, name: str, micro: int) -> None:
    recipe = Recipe(objective=name, batch=24)
    results = []
    for size in (None, micro):
        step, source = make(model, recipe.replace(micro_batch=size))
        index = Sampler("pairs", 24, seed=3).epoch(source.split, 0)[0]
        value = step.gradient(source.fetch(index), step.objectives[name])
        results.append((value, gradients(step)))
    (plain, wanted), (cached, found) = results
    torch.testing.assert_close(plain, cached)
    assert wanted.keys() == found.keys()
    for key in wanted:
        assert (wanted[key] - found[key]).norm() <= 1e-5 * wanted[key].norm() + 1e-6, key


@pytest.mark.parametrize("name", ["off-tri", "off-quin", "adap-off-quin"])
@pytest.mark.parametrize("model", list(DATA))
def test_offline_draws_reach_the_right_pairs(model: str, name: str) -> None:
    """The four offline similarities, against encoding every drawn pair by itself."""
    step, source = make(model, Recipe(objective=name, batch=16, depth=20))
    split = source.split
    lists = random_lists(split, 30)
    draw = draw_of(step.recipe, split, lists)
    plain = Sampler("pairs", 16, seed=1).epoch(split, 0)[:2]
    index = draw.epoch(plain, epoch=0)[1]
    # Each distinct image and caption once, the batch first.
    assert len(set(index.images.tolist())) == len(index.images)
    assert index.images[: index.own_images].tolist() == plain[1].images.tolist()
    assert index.captions[: index.own_captions].tolist() == plain[1].captions.tolist()
    place = index.places()
    mined_caption = index.captions[place["caption"]]
    mined_image = index.images[place["image"]]
    own = plain[1].images[plain[1].image_of_caption]
    for k in range(16):
        rank = int(np.flatnonzero(lists.i2t[own[k], :20] == mined_caption[k])[0])
        assert rank < 20
        assert mined_image[k] in lists.t2i[plain[1].captions[k], :4]  # rank // 5
        if name == "off-tri":  # has no use for partners
            continue
        assert index.images[place["partner_image"][k]] == split.image_of_caption[mined_caption[k]]
        partner = index.captions[place["partner_caption"][k]]
        assert split.image_of_caption[partner] == mined_image[k]
    step.model.eval()
    batch = source.fetch(index)
    step.gradient(batch, step.objectives[name])
    assert all(torch.isfinite(g).all() for g in gradients(step).values())


def test_draws_repeat_with_the_seed_and_differ_between_epochs() -> None:
    step, source = make(next(iter(DATA)), Recipe(objective="off-tri", depth=10, draw="normal"))
    found = mine(torch.randn(40, 8), torch.randn(200, 8), source.split.image_of_caption, depth=10)
    draw = draw_of(step.recipe, source.split, found)
    plan = Sampler("pairs", 32).epoch(source.split, 0)
    first, again, later = draw.epoch(plan, 0), draw.epoch(plan, 0), draw.epoch(plan, 1)
    assert all(np.array_equal(a.captions, b.captions) for a, b in zip(first, again, strict=True))
    assert any(len(a.captions) != len(b.captions) for a, b in zip(first, later, strict=True))


@pytest.mark.parametrize("name", ["off-tri", "adap-off-quin"])
def test_where_lists_hold_nothing_other_images_stand_in(name: str) -> None:
    """-1 throughout, a list of one entry, and an image that has no caption to be a partner."""
    step, source = make(VSE, Recipe(objective=name, batch=16, depth=6))
    keep = source.split.image_of_caption != 3
    split = dataclasses.replace(
        source.split,
        captions=[c for c, k in zip(source.split.captions, keep, strict=True) if k],
        image_of_caption=source.split.image_of_caption[keep],
        caption_ids=None,
    )
    i2t = np.full((split.num_images, 6), -1, dtype=np.int32)
    t2i = np.full((split.num_captions, 6), -1, dtype=np.int32)
    i2t[5, 0], t2i[:20] = 190, 3
    draw = draw_of(step.recipe, split, Candidates(i2t, t2i, {}))
    plan = Sampler("pairs", 16).epoch(split, 0)
    for plain, index in zip(plan, draw.epoch(plan, 0), strict=True):
        place, own = index.places(), plain.images[plain.image_of_caption]
        caption, image = index.captions[place["caption"]], index.images[place["image"]]
        assert caption.min() >= 0
        assert image.min() >= 0
        assert (split.image_of_caption[caption] != own).all()
        assert (image != own).all()
        assert (image != 3).all()
        assert (caption[own == 5] == 190).all()


def test_what_was_drawn_is_not_taken_for_captions_of_the_batch() -> None:
    """The triplets and the spread of weight that a run notes are those of its own batch."""
    step, source = make(VSE, Recipe(objective="off-quin", depth=10))
    split = source.split
    found = mine(torch.randn(40, 8), torch.randn(200, 8), split.image_of_caption, depth=10)
    plain = Sampler("pairs", 16).epoch(split, 0)[:1]
    index = draw_of(step.recipe, split, found).epoch(plain, 0)[0]
    step.model.eval()
    chosen = objective("triplet")
    wanted, triplets = observe(chosen, step.model, source.fetch(plain[0]), pairs=False)
    told, others = observe(chosen, step.model, source.fetch(index), pairs=False)
    assert str(told) == str(wanted)
    torch.testing.assert_close(others, triplets)


def test_what_is_observed_has_the_pairing_of_the_run() -> None:
    """With `positives: pairs`, an image's other captions are negatives there, too."""
    step, source = make(VSE, Recipe(objective="nt-xent", batch=32))
    index = Sampler("pairs", 32).epoch(source.split, 0)[0]
    assert len(index.images) < 32
    batch, chosen = source.fetch(index), objective("nt-xent")
    step.model.eval()
    with torch.no_grad():
        images = step.model.encode_images(batch.images).select(batch.image_of_caption)
        S = step.model.similarities(images, step.model.encode_captions(batch.tokens, batch.lengths))
    told, triplets = observe(chosen, step.model, batch, pairs=True)
    assert told == attention(chosen.weigh(S), torch.arange(32))
    assert len(triplets) == 64
    assert told != observe(chosen, step.model, batch, pairs=False)[0]


def test_one_image_has_no_negatives_to_draw() -> None:
    split = open_dataset("scenes(train=1, val=1, test=1, features=global)").split("train")
    lists = Candidates(np.full((1, 5), -1, np.int32), np.full((5, 1), -1, np.int32), {})
    with pytest.raises(InputError, match="captions of one image only"):
        draw_of(Recipe(objective="off-tri"), split, lists)


def test_published_schedules() -> None:
    vsepp = Recipe(epochs=30, lr=2e-4, decay_every=15, finetune_epochs=15, finetune_lr=2e-5)
    rate = [vsepp.lr * moment(vsepp, e, 0, 10).lr_factor for e in (0, 14, 15, 29, 30, 44)]
    assert rate == pytest.approx([2e-4, 2e-4, 2e-5, 2e-5, 2e-5, 2e-5])
    assert [moment(vsepp, e, 0, 10).train_backbone for e in (0, 29, 30)] == [False, False, True]
    infinity = Recipe(
        objective="triplet-sh", first_objective="triplet", first_epochs=1, freeze_epochs=1
    )
    assert [moment(infinity, e, 5, 10).objective for e in (0, 1)] == ["triplet", "triplet-sh"]
    assert [moment(infinity, e, 5, 10).loss_factor for e in (0, 1, 2)] == [1.0, 0.5, 1.0]
    assert [moment(infinity, e, 5, 10).train_backbone for e in (0, 1)] == [False, True]
    xvlm = Recipe(epochs=10, decay="linear", warmup=0.1)
    factors = [moment(xvlm, e, s, 10).lr_factor for e, s in ((0, 0), (0, 5), (1, 0), (9, 9))]
    assert factors == pytest.approx([0.1, 0.6, 1.0, 1 / 90])


@pytest.mark.parametrize("decay", ["step", "linear", "cosine"])
def test_the_rate_rises_alike_in_every_schedule_and_stage(decay: str) -> None:
    recipe = Recipe(epochs=2, finetune_epochs=2, finetune_lr=2e-4, lr=2e-4, decay=decay, warmup=0.2)
    for stage in (0, 2):
        factors = [moment(recipe, stage, step, 25).lr_factor for step in range(11)]
        assert factors == pytest.approx([*(k / 10 for k in range(1, 11)), 1.0])


def test_a_warm_up_is_a_share() -> None:
    with pytest.raises(InputError, match="warmup"):
        Recipe(warmup=5)


def test_bf16_agrees_with_float32() -> None:
    values = []
    for precision in ("float32", "bf16"):
        step, source = make(next(iter(DATA)), Recipe(objective="nt-xent", precision=precision))
        index = Sampler("pairs", 32).epoch(source.split, 0)[0]
        values.append(float(step.gradient(source.fetch(index), step.objectives["nt-xent"])))
    assert values[0] == pytest.approx(values[1], rel=0.02)


def test_an_overflow_in_another_process_is_noticed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """fp16: the step is left out everywhere, or weights would part."""
    step, source = make(VSE, Recipe(objective="nt-xent", precision="fp16"))
    batch = source.fetch(Sampler("pairs", 16).epoch(source.split, 0)[0])
    step.optimizer.scaler.load_state_dict({**step.optimizer.scaler.state_dict(), "scale": 2.0})
    before = {k: v.clone() for k, v in step.model.state_dict().items()}
    step.update(batch, step.objectives["nt-xent"])
    after = {k: v.clone() for k, v in step.model.state_dict().items()}
    assert any(not torch.equal(before[k], after[k]) for k in before)

    def sum_with_overflow(model: torch.nn.Module, learned: torch.nn.Module) -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.fill_(torch.inf)

    monkeypatch.setattr("simgrad.training.distributed.add_gradients", sum_with_overflow)
    step.update(batch, step.objectives["nt-xent"])
    assert step.optimizer.scaler.get_scale() == 1.0
    assert all(torch.equal(after[k], v) for k, v in step.model.state_dict().items())


def test_pairs_as_published_make_negatives_of_the_own_captions() -> None:
    """A batch of one image's captions: `pairs` pushes them apart; `images` does not."""
    found = {}
    for positives in ("pairs", "images"):
        step, source = make(next(iter(DATA)), Recipe(objective="triplet", positives=positives))
        index = Sampler("images", 1, 5).epoch(source.split, 0)[0]
        found[positives] = float(step.gradient(source.fetch(index), step.objectives["triplet"]))
    assert found["images"] == 0  # no negatives at all
    assert found["pairs"] > 0


@pytest.mark.parametrize(
    "model",
    [
        "scan(dimension=16, word_dimension=8)",
        "scan(dimension=16, word_dimension=8, direction=i-t, aggregate=mean)",
        "bfan(dimension=16, word_dimension=8)",
        "bfan(dimension=16, word_dimension=8, focal=prob)",
        "vse++(dimension=16, word_dimension=8)",
        "vse++(dimension=16, word_dimension=8, measure=order, absolute=true)",
    ],
)
def test_pairwise_is_the_diagonal_of_all_similarities(model: str) -> None:
    kind = "global" if model.startswith("vse++") else "regions"
    split = open_dataset(f"scenes(train=40, val=5, test=5, features={kind})").split("train")
    vocabulary = Vocabulary.build(split.captions, min_count=1)
    assert split.features is not None
    shape = split.features.shape
    built = build(
        model, Inputs("features" if len(shape) == 1 else "regions", shape, len(vocabulary))
    )
    batch = Source(split, vocabulary, resident=True).fetch(
        Sampler("distinct", 12).epoch(split, 0)[0]
    )
    images = built.encode_images(batch.images)
    captions = built.encode_captions(batch.tokens, batch.lengths)
    wanted = built.similarities(images, captions).diagonal()
    torch.testing.assert_close(built.pairwise(images, captions), wanted, rtol=1e-4, atol=1e-5)


def test_a_sum_is_a_mean_times_the_queries_of_both_directions() -> None:
    """With `reduction: sum` every objective's gradient is that of its mean, times them."""
    for name in ("triplet-sh", "nt-xent", "siglip", "focused-deviance"):
        found = {}
        for reduction in ("mean", "sum"):
            step, source = make(VSE, Recipe(objective=name, reduction=reduction, positives="pairs"))
            batch = source.fetch(Sampler("distinct", 8, 1, 0, False).epoch(source.split, 0)[0])
            step.gradient(batch, step.objectives[name])
            found[reduction] = gradients(step)
        for key, mean in found["mean"].items():
            torch.testing.assert_close(found["sum"][key], 16 * mean, rtol=1e-4, atol=1e-7)


def test_adams_constant_is_the_recipes() -> None:
    step, _ = make(VSE, Recipe(objective="nt-xent", epsilon=1e-11))
    assert {group["eps"] for group in step.optimizer.inner.param_groups} == {1e-11}
