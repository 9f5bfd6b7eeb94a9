"""What a model can do is asked of the model itself."""

from pathlib import Path

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data.vocabulary import Vocabulary
from simgrad.models import Inputs, RetrievalModel, build, models
from simgrad.models.base import TokenizerNeeds
from simgrad.retriever.prepare import prepare
from simgrad.runs.recipe import Recipe
from tests.models.small import FEATURES, PIXELS, SMALL, captions, images, small

FROZEN = "vse++(dimension=8, word_dimension=8, backbone=random:efficientnet-lite0)"
TRAINED = FROZEN.replace("lite0", "lite0, finetune=true")
CAPTIONS = ["a dog jumps", "a t-shirt", "two dogs", "a dog", "the dog's hat"] * 5


@pytest.mark.parametrize("name", SMALL)
def test_what_cannot_be_frozen_says_so(name: str) -> None:
    model = small(name)
    assert not model.can_freeze()
    assert not model.config.trains_backbone
    model.set_backbone(True)  # nothing to do
    with pytest.raises(InputError, match="leave freeze_epochs and finetune_epochs out"):
        model.set_backbone(False)


def test_an_image_network_of_one_s_own_is_frozen_and_thawed() -> None:
    model = build(TRAINED, PIXELS)
    assert model.can_freeze()
    assert model.fixed_network() is None
    tower = model.image_network()
    assert tower is not None
    model.set_backbone(False)
    assert not any(p.requires_grad for p in tower.parameters())
    assert model.fixed_network() is not None
    model.set_backbone(True)
    assert all(p.requires_grad for p in tower.parameters())
    kept = build(FROZEN, PIXELS)  # its settings say that it is never trained
    assert kept.image_network() is not None
    assert not kept.can_freeze()
    assert not build(TRAINED, FEATURES).can_freeze()  # given features it has no network


@pytest.mark.parametrize("setting", ["freeze_epochs", "finetune_epochs"])
@pytest.mark.parametrize(
    ("model", "features"),
    [("clip(source=none, width=16, layers=1, heads=2, size=32, patch=16)", "pixels"),
     ("vse++(dimension=8)", "global"), (FROZEN, "pixels")],
)  # fmt: skip
def test_a_setting_that_a_model_cannot_honour_is_refused(
    setting: str, model: str, features: str
) -> None:
    recipe = Recipe(
        model=model, data=f"scenes(features={features}, train=8, val=4, test=4)", device="cpu"
    )
    with pytest.raises(InputError, match=setting):
        prepare(recipe.replace(**{setting: 1}))
    assert not prepare(recipe).model.can_freeze()


def test_batch_norms_mix_images_while_they_are_trained() -> None:
    model = small("vsrn")
    assert model.has_batch_norms()
    assert not model.eval().mixes_images()
    assert model.train().mixes_images()
    plain = small("vse++").train()
    assert not plain.has_batch_norms()
    assert not plain.mixes_images()
    frozen = build(FROZEN, PIXELS).train()  # its batch norms keep their statistics
    assert frozen.has_batch_norms()
    assert not frozen.mixes_images()


def encoded(model: RetrievalModel) -> tuple[object, object]:
    batch = captions()
    with torch.no_grad():
        image = model.encode_images(images(model.inputs))
        return image, model.encode_captions(batch.tokens, batch.lengths)


@pytest.mark.parametrize("name", SMALL)
def test_a_second_look_is_asked_for(name: str) -> None:
    model = small(name)
    second = model.reranker(*encoded(model))
    assert (second is not None) == (name == "x-vlm")
    if second is not None:
        assert second.candidates == model.config.rerank
        pairs = torch.tensor([[0, 1], [4, 6], [2, 2]])
        with torch.no_grad():
            expected = model.scores(*encoded(model), pairs)
            assert torch.equal(second.scores(pairs), expected)


def test_the_scale_of_pretraining(tmp_path: Path) -> None:
    assert small("clip").pretrained_scale() is None
    assert small("vse++").pretrained_scale() is None
    for name in ("clip", "siglip"):
        body = small(name).body.net
        body.config.save_pretrained(tmp_path / name)
        body.save_pretrained(tmp_path / name)
        scale = build(f"clip(source={tmp_path / name})", PIXELS).pretrained_scale()
        assert scale is not None
        assert scale.scale == pytest.approx(float(body.logit_scale.detach().exp()), rel=1e-6)
        assert (scale.bias == 0.0) == (name == "clip")


def test_needs_make_a_tokenizer() -> None:
    words = models.parse("vse++").tokenizer_needs.tokenizer(lambda: CAPTIONS, None, 4)
    assert isinstance(words, Vocabulary)
    assert words.mask is None
    hidden = models.parse("vse-infinity(text=bigru)").tokenizer_needs
    masked = hidden.tokenizer(lambda: CAPTIONS, None, 4)
    assert masked.mask == len(words)
    assert Inputs.of("regions", (3, 4), masked).mask_token == len(words)
    assert models.parse("vse-infinity(bert=none)").tokenizer_needs == TokenizerNeeds(pieces=True)
    named = models.parse("scan(text=bert, bert=some/name)").tokenizer_needs
    assert named.network == ("bert", "some/name")


def test_xvlm_s_captions_are_cleaned_before_they_are_cut() -> None:
    config = models.parse("x-vlm(bert=none, most_words=3)")
    pieces = config.tokenizer_needs.tokenizer(lambda: CAPTIONS, None, 4)
    saved = type(pieces).from_json(pieces.to_json())
    for tokenizer in (pieces, saved):
        assert tokenizer.encode("A T-shirt, dogs!  and more") == tokenizer.encode("a t shirt")
        assert tokenizer.encode("The dog's, hat...") == tokenizer.encode("the dogs hat")
        assert tokenizer.encode("the dogs hat") != tokenizer.encode("the dog hat")


def test_captions_are_cut_for_one_model_alone() -> None:
    """Runs side by side share a tokenizer, and each cuts captions at its own length."""
    for needs in (TokenizerNeeds(), TokenizerNeeds(pieces=True)):
        shared = needs.tokenizer(lambda: CAPTIONS, None, 4)
        short = shared.cut(3)
        assert len(shared.encode("a dog a dog a dog")) > 3
        ids = short.encode("a dog a dog a dog")
        assert len(ids) == 3
        assert (ids[0], ids[-1]) == (shared.encode("a")[0], shared.encode("a")[-1])
        assert type(short).from_json(short.to_json()).encode("a dog a dog") == ids
        assert shared.cut(None) is shared
