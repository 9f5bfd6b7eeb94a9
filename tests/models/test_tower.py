"""Image networks inside models: frozen, fine-tuned, kept in checkpoints, imported."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from simgrad.models import Inputs, RetrievalModel, build, load, save
from simgrad.models.networks import backbone_weights, backbones
from simgrad.models.published.checkpoints import convert, read_published_checkpoint
from tests.models import published_files as files
from tests.models.small import captions

INPUTS = Inputs("pixels", (3, 16, 16), 23)


class Tiny(nn.Module):
    """A network with a batch norm, small enough for tests."""

    dimension = 6

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 4, 4)
        self.bn1 = nn.BatchNorm2d(6)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.bn1(self.conv1(pixels))

    def pooled(self, pixels: Tensor) -> Tensor:
        return self(pixels).mean((2, 3))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    network = backbones.NamedNetwork(Tiny, 16, "vse++", backbone_weights.WeightSource())
    monkeypatch.setitem(backbones.NETWORKS, "tiny", network)


def vsepp(more: str = "") -> RetrievalModel:
    torch.manual_seed(0)
    spec = f"vse++(dimension=8, word_dimension=8, backbone=tiny, weights=random{more})"
    return build(spec, INPUTS)


def infinity(more: str = "") -> RetrievalModel:
    torch.manual_seed(0)
    spec = "vse-infinity(dimension=8, text=bigru, word_dimension=8, backbone=tiny, weights=random"
    return build(f"{spec}, cells=2, augment=0{more})", INPUTS)


def gradient(model: RetrievalModel) -> Tensor | None:
    batch = captions()
    model.train()
    model.zero_grad()
    model(torch.rand(5, 3, 16, 16), batch.tokens, batch.lengths).square().sum().backward()
    return model.get_parameter("tower.body.network.conv1.weight").grad


def statistics(model: RetrievalModel) -> Tensor:
    return model.get_buffer("tower.body.network.bn1.running_mean").clone()


def test_a_frozen_network_is_left_alone() -> None:
    model = vsepp()
    assert gradient(model) is None
    assert statistics(model).abs().sum() == 0
    trained = [id(p) for group in model.parameter_groups(1.0) for p in group["params"]]
    assert id(model.get_parameter("tower.body.network.conv1.weight")) not in trained
    assert id(model.get_parameter("fc.weight")) in trained


def test_a_fine_tuned_network_is_trained_with_its_batch_norms() -> None:
    model = vsepp(", finetune=true")
    found = gradient(model)
    assert found is not None
    assert found.abs().sum() > 0
    assert statistics(model).abs().sum() > 0


def test_a_fine_tuned_network_may_keep_its_statistics() -> None:
    model = vsepp(", finetune=true, keep_statistics=true")
    found = gradient(model)
    assert found is not None
    assert found.abs().sum() > 0
    assert statistics(model).abs().sum() == 0


def test_vse_infinity_trains_its_network_and_keeps_the_statistics() -> None:
    model = infinity()
    found = gradient(model)
    assert found is not None
    assert found.abs().sum() > 0
    assert statistics(model).abs().sum() == 0
    rates = {id(p): group["lr"] for group in model.parameter_groups(1.0) for p in group["params"]}
    weight = model.get_parameter("tower.body.network.conv1.weight")
    assert rates[id(weight)] == pytest.approx(0.1)


def test_pixels_may_be_bytes_and_the_checkpoint_carries_the_network(tmp_path: Path) -> None:
    model = infinity().eval()
    batch = captions()
    pixels = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    expected = model(pixels, batch.tokens, batch.lengths)
    assert torch.allclose(model(pixels / 255, batch.tokens, batch.lengths), expected, atol=1e-5)
    with torch.no_grad():
        model.get_parameter("tower.body.network.conv1.weight").add_(1)
    save(tmp_path, model, None)
    again = load(tmp_path).model
    assert torch.equal(
        again(pixels, batch.tokens, batch.lengths), model(pixels, batch.tokens, batch.lengths)
    )


def test_a_published_checkpoint_brings_its_network(tmp_path: Path) -> None:
    model = vsepp().eval()
    content = files.checkpoint("vse++", model)
    network = files.under(model.state_dict(), "tower.body.network", "cnn.module")
    content["model"][0] |= network
    content["opt"].cnn_type = "tiny"
    imported = convert(read_published_checkpoint(files.write(tmp_path / "m", content)))
    batch, pixels = captions(), torch.rand(3, 3, 16, 16)
    expected = model(pixels, batch.tokens, batch.lengths)
    found = imported.model(pixels, batch.tokens, batch.lengths)
    assert torch.allclose(found, expected, atol=1e-6)
    assert imported.left_out is None


def test_a_vision_transformer_reads_pictures_of_another_size(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        image_size=32, patch_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8,
    )  # fmt: skip
    ViTModel(config).save_pretrained(tmp_path)
    spec = "vse-infinity(dimension=8, text=bigru, word_dimension=8, cells=6, augment=0, size=48"
    model = build(f"{spec}, backbone=transformers:{tmp_path})", INPUTS).eval()
    assert model.inputs.image_shape == (3, 48, 48)
    vectors = model.encode_images(torch.rand(2, 3, 48, 48)).vectors
    assert vectors is not None
    assert vectors.shape == (2, 8)
