"""What holds for every declared model: specs, padding, order, precision, gradients."""

from typing import Any

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.models import Encoded, Inputs, build, models
from simgrad.models.base import RetrievalModel
from tests.models.small import (
    FEATURES,
    PIXELS,
    SETS,
    SMALL,
    CaptionBatch,
    captions,
    images,
    small,
)

NAMES = list(SMALL)


def captions_for(model: RetrievalModel) -> CaptionBatch:
    """To a single token BFAN finds all regions equally relevant, and rounding decides which it
    keeps; a tokenizer gives two at least."""
    return captions(shortest=2 if model.config.name == "bfan" else 1)


def similarities(model: RetrievalModel, seed: int = 1) -> torch.Tensor:
    batch = captions_for(model)
    with torch.no_grad():
        return model(images(model.inputs, seed=seed), batch.tokens, batch.lengths)


def test_every_declared_model_is_tested() -> None:
    assert {spec.split("(")[0] for spec, _ in SMALL.values()} == {d.name for d in models}


@pytest.mark.parametrize("declaration", models, ids=lambda d: d.name)
def test_declarations(declaration) -> None:
    assert declaration.paper
    assert all(parameter.description for parameter in declaration.parameters)
    assert str(models.parse(declaration.name)) == declaration.name


@pytest.mark.parametrize("name", NAMES)
def test_spec_parses_back(name: str) -> None:
    model = small(name)
    assert models.parse(str(model.config)) == model.config


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_what_the_similarities_say(name: str) -> None:
    model = small(name)
    batch = captions_for(model)
    with torch.no_grad():
        image = model.encode_images(images(model.inputs))
        caption = model.encode_captions(batch.tokens, batch.lengths)
    found = model.similarities(image, caption)
    assert found.shape == (5, 7)
    assert found.std() > 1e-4  # it tells images and captions apart
    if model.embeds:
        assert image.vectors is not None
        assert caption.vectors is not None
        assert torch.allclose(image.vectors.norm(dim=1), torch.ones(5), atol=1e-5)
        assert torch.allclose(caption.vectors.norm(dim=1), torch.ones(7), atol=1e-5)
        assert torch.allclose(found, image.vectors @ caption.vectors.T, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_padding_never_changes_a_result(name: str) -> None:
    """Whatever stands behind a caption, and however much of it."""
    model = small(name)
    batch = captions_for(model)
    expected = similarities(model)
    noise = torch.randint(0, 23, (7, 12), generator=torch.Generator().manual_seed(3))
    noise[:, :9] = torch.where(torch.arange(9) < batch.lengths[:, None], batch.tokens, noise[:, :9])
    with torch.no_grad():
        found = model(images(model.inputs), noise, batch.lengths)
        alone = model(
            images(model.inputs), batch.tokens[2:3, : batch.lengths[2]], batch.lengths[2:3]
        )
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(alone[:, 0], expected[:, 2], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_batch_order_never_changes_a_result(name: str) -> None:
    model = small(name)
    batch = captions_for(model)
    rows, columns = torch.tensor([3, 0, 4]), torch.tensor([6, 1, 5, 0])
    with torch.no_grad():
        found = model(images(model.inputs)[rows], batch.tokens[columns], batch.lengths[columns])
    assert torch.allclose(found, similarities(model)[rows][:, columns], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_encoded_pieces_may_be_joined(name: str) -> None:
    """Images once, captions in pieces of different lengths: as evaluation does."""
    model = small(name)
    batch = captions_for(model)
    with torch.no_grad():
        image = model.encode_images(images(model.inputs))
        pieces = []
        for part in (slice(0, 3), slice(3, 7)):
            longest = int(batch.lengths[part].max())
            pieces.append(model.encode_captions(batch.tokens[part, :longest], batch.lengths[part]))
        found = model.similarities(image, Encoded.cat(pieces))
    assert torch.allclose(found, similarities(model), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_single_pairs(name: str) -> None:
    model = small(name)
    batch = captions_for(model)
    own = torch.tensor([3, 0, 4, 4, 1, 2, 0])
    with torch.no_grad():
        image = model.encode_images(images(model.inputs))
        caption = model.encode_captions(batch.tokens, batch.lengths)
        found = model.pairwise(image.select(own), caption)
    expected = similarities(model)[own, torch.arange(7)]
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_agrees(name: str) -> None:
    model = small(name)
    expected = similarities(model)
    with torch.autocast("cpu", torch.bfloat16):
        found = similarities(model)
    assert found.dtype == torch.float32
    # BFAN cuts at a threshold, which rounding may cross.
    assert (found - expected).abs().max() < (0.2 if name.startswith("bfan") else 0.05)
    assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.97


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_gets_a_gradient(name: str) -> None:
    model = small(name).train()
    batch = captions_for(model)
    image = model.encode_images(images(model.inputs))
    caption = model.encode_captions(batch.tokens, batch.lengths)
    loss = (model.similarities(image, caption) * torch.randn(5, 7)).sum()
    own = model.auxiliary_loss(image, caption, batch)
    (loss if own is None else loss + own).backward()
    idle = {"body.net.logit_scale", "body.net.logit_bias"}  # CLIP's own, the objective's here
    for weight, parameter in model.named_parameters():
        if weight not in idle:
            assert parameter.grad is not None, weight
            assert torch.isfinite(parameter.grad).all(), weight


@pytest.mark.parametrize("name", NAMES)
def test_parameter_groups_hold_every_weight_once(name: str) -> None:
    model = small(name)
    groups = model.parameter_groups(1e-3)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(p) for p in model.parameters() if p.requires_grad}
    assert max(group["lr"] for group in groups) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("name", "weight"),
    [("vse-infinity", "bert.words.weight"), ("scan bert", "text.bert.words.weight")],
)
def test_bert_is_trained_slowly(name: str, weight: str) -> None:
    model = small(name)
    rates = {id(p): group["lr"] for group in model.parameter_groups(5e-4) for p in group["params"]}
    assert rates[id(model.get_parameter(weight))] == pytest.approx(5e-5)
    assert rates[id(model.get_parameter("fc.weight"))] == pytest.approx(5e-4)


@pytest.mark.parametrize(
    ("spec", "inputs", "reason"),
    [
        ("vse++", SETS, "reads features or pixels"),
        ("scan", FEATURES, "reads regions"),
        ("x-vlm", SETS, "reads pixels"),
        ("scan", PIXELS, "simgrad features DATA --grid 7"),
        ("x-vlm(size=224)", PIXELS, "a multiple of 384, or another window"),
        ("vse-infinity(text=bigru)", PIXELS, "no network that reads them"),
        ("x-vlm(swin_depths=two)", PIXELS, "numbers with dashes"),
        ("vse+", FEATURES, "Did you mean 'vse\\+\\+'"),
        ("vse++(dimensions=3)", FEATURES, "Did you mean 'dimension'"),
        ("vse-infinity(bert=no/such)", SETS, "Put config.json, model.safetensors and tok"),
        ("clip(source=no/such)", PIXELS, "give source=FOLDER"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(
    spec: str, inputs: Inputs, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=reason):
        build(spec, inputs)


def test_inputs_know_the_tokenizer() -> None:
    from simgrad.data.subwords import WordPieces
    from simgrad.data.vocabulary import Vocabulary

    words = Vocabulary(["<pad>", "<start>", "<end>", "<unk>", "<mask>", "dog"])
    inputs = Inputs.of("features", (8,), words)
    assert (inputs.vocabulary_size, inputs.mask_token, inputs.continuations) == (6, 4, ())
    pieces = WordPieces.build(["a dog jumps", "dogs jumping", "a jumper"] * 5, size=40)
    inputs = Inputs.of("regions", (4, 8), pieces)
    assert inputs.mask_token == pieces.mask
    text = pieces.encode("jumpers")[1:-1]
    assert set(text[1:]) <= set(inputs.continuations)
    assert text[0] not in inputs.continuations
    assert Inputs.from_json(inputs.to_json()) == inputs


def test_inputs_know_a_tokenizer_whose_pieces_are_a_list() -> None:
    """As SigLIP's are."""
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    from simgrad.data.subwords import Subwords

    pieces = Subwords(Tokenizer(Unigram([("<unk>", 0.0), ("##a", -1.0), ("b", -2.0)], 0)))
    inputs = Inputs.of("pixels", (3,), pieces)
    assert (inputs.vocabulary_size, inputs.continuations) == (3, ())
    assert Subwords.from_json(pieces.to_json()).encode("b##a") == pieces.encode("b##a")


def test_what_a_loss_of_the_model_s_own_looks_at_is_known_wherever_it_is_written() -> None:
    class Extra:
        def auxiliary_loss(self, images: Any, captions: Any, batch: Any) -> Any: ...

    class Mixed(Extra, RetrievalModel):
        pass

    class Stated(Mixed):
        auxiliary_sees = "pairs"

    class Again(Stated):
        def auxiliary_loss(self, images: Any, captions: Any, batch: Any) -> Any: ...

    class Plain(RetrievalModel):
        pass

    kinds = (Plain, Mixed, Stated, Again)
    assert [one.auxiliary_sees for one in kinds] == ["nothing", "batch", "pairs", "batch"]
