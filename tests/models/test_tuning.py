"""What is trained of a pretrained model: exactly what was asked for, or a refusal."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data.transforms import named
from simgrad.models import load, save
from tests.models.test_pretrained import made, ours
from tests.models.tiny import FOLDERS, pictures

# train_image, train_text -> what of the names moves
WAYS = {
    "full": ("full", "full", r"(vision_model|visual_projection|text_model|text_projection)\."),
    "text": ("none", "full", r"(text_model|text_projection)\."),
    "image": ("full", "none", r"(vision_model|visual_projection)\."),
    "last": (
        "last=1",
        "none",
        r"(vision_model\.(encoder\.layers\.1|post_layernorm|head)|visual_projection)\.",
    ),
    "lora": ("lora=2", "lora=2", r"(vision|text)_model\.encoder\.layers\..*lora_[AB]"),
    "lora text": ("none", "lora", r"text_model\.encoder\.layers\..*lora_[AB]"),
}


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: Any, tmp_path_factory: Any) -> Path:
    return FOLDERS[request.param](tmp_path_factory.mktemp(request.param))


def stepped(model: Any, tokenizer: Any) -> set[str]:
    """Train a few steps; the names of what moved."""
    before = {name: p.detach().clone() for name, p in model.body.net.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameter_groups(1e-2), weight_decay=0.1)
    model.train()
    for _ in range(3):
        images, captions = ours.__wrapped__(model, tokenizer)
        loss = torch.nn.functional.cross_entropy(10 * images @ captions.T, torch.arange(5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    return {n for n, p in model.body.net.named_parameters() if not torch.equal(p, before[n])}


@pytest.mark.parametrize("way", WAYS)
def test_exactly_what_should_move_does(folder: Path, way: str) -> None:
    image, text, pattern = WAYS[way]
    model, tokenizer = made(folder, f", train_image={image}, train_text={text}")
    names = {name for name, _ in model.body.net.named_parameters()}
    expected = {name for name in names if re.match(pattern, name)}
    # Keys' biases shift all of a softmax alike; positions beyond the captions are not read.
    still = {n for n in expected if "k_proj.bias" in n}
    assert expected
    moved = stepped(model, tokenizer)
    assert moved <= expected
    assert expected - still <= moved


def test_low_rank_changes_begin_at_nothing_and_are_kept(folder: Path, tmp_path: Path) -> None:
    plain, tokenizer = made(folder)
    model, _ = made(folder, ", train_image=lora=2, train_text=lora=2")
    for one, other in zip(ours(plain, tokenizer), ours(model, tokenizer), strict=True):
        assert (one - other).abs().max() < 1e-6
    stepped(model, tokenizer)
    save(tmp_path / "kept", model, tokenizer)
    again = load(tmp_path / "kept").model
    for one, other in zip(ours(model, tokenizer), ours(again, tokenizer), strict=True):
        assert torch.equal(one, other)


def test_layers_further_from_the_end_learn_more_slowly(folder: Path) -> None:
    model, _ = made(folder, ", layer_decay=0.5")
    groups = model.parameter_groups(1.0)
    rate = {id(p): group["lr"] for group in groups for p in group["params"]}
    decay = {id(p): group.get("weight_decay") for group in groups for p in group["params"]}
    named = dict(model.body.net.named_parameters())
    assert rate[id(named["text_model.embeddings.token_embedding.weight"])] == 0.125
    assert rate[id(named["text_model.encoder.layers.0.mlp.fc1.weight"])] == 0.25
    assert rate[id(named["text_model.encoder.layers.1.mlp.fc1.weight"])] == 0.5
    assert rate[id(named["text_model.final_layer_norm.weight"])] == 1.0
    assert decay[id(named["text_model.final_layer_norm.weight"])] == 0.0
    assert decay[id(named["text_model.encoder.layers.0.mlp.fc1.bias"])] == 0.0
    assert decay[id(named["text_model.encoder.layers.0.mlp.fc1.weight"])] is None


def test_what_a_model_cannot_do_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"train_image=last=3.*2 layers"):
        made(folder, ", train_image=last=3")
    with pytest.raises(InputError, match="full, none, last=K or lora"):
        made(folder, ", train_text=some")
    with pytest.raises(InputError, match="nothing is trained"):
        made(folder, ", train_image=none, train_text=none")[0].parameter_groups(1.0)


def test_memory_is_saved_without_another_gradient(folder: Path) -> None:
    found = []
    for settings in ("", ", checkpointing=true"):
        model, tokenizer = made(folder, settings)
        model.train()
        images, captions = ours.__wrapped__(model, tokenizer)
        (images @ captions.T).square().sum().backward()
        found.append(dict(model.body.net.named_parameters()))
    name = "vision_model.encoder.layers.0.mlp.fc1.weight"
    assert torch.allclose(found[0][name].grad, found[1][name].grad, atol=1e-6)
    assert not model.can_capture()


def test_a_locked_tower_is_given_what_it_made_before(folder: Path) -> None:
    model, _tokenizer = made(folder, ", train_image=none")
    network, grid = model.fixed_network()
    assert grid is None
    assert model.fixed_captions() is None
    cut = named(network.transform, train=False, size=network.size)
    pixels = torch.stack([cut(picture, None) for picture in pictures()])
    with torch.no_grad():
        before = network.folded().pooled(pixels)
        whole, given = model.encode_images(pixels), model.encode_images(before)
    assert (whole.vectors - given.vectors).abs().max() < 1e-5
