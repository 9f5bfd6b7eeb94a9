"""Untrained networks where the published tables look for pretrained ones.

Each is of the right kind and lies where a user would put the real one, so that recipes find them
without a change. BERT, ViT and X-VLM are tiny; ResNets have their own sizes, which their names fix.
"""

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.cli.import_checkpoint import import_checkpoint
from simgrad.models.networks.backbones import NETWORKS
from simgrad.models.networks.convnets import ResNet
from tests.models import published_files
from tests.models.small import WORDS, small
from tests.models.test_backbones import FakeTimm

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "word", *map(str, range(10)), "##0"]
_TINY = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 8,
}


def put(cache: Path, patch: pytest.MonkeyPatch, resnets: tuple[int, ...] = (50, 152)) -> None:
    """All that recipes fetch, in a cache of its own; `timm` gives way to one small network."""
    patch.setenv("SIMGRAD_CACHE", str(cache))
    weights = cache / "weights"
    weights.mkdir(parents=True)
    for depth in resnets:
        with torch.device("meta"):
            named = ResNet(depth).state_dict()
        state = {name: torch.rand(t.shape).to(t.dtype) * 0.01 for name, t in named.items()}
        halved = {name: t.half() if t.is_floating_point() else t for name, t in state.items()}
        torch.save(halved, weights / f"resnet{depth}.pth")
    bert(weights / "bert-base-uncased")
    vit(weights / "google--vit-base-patch16-224")
    patch.setitem(sys.modules, "timm", timm())


class _TinyResNet(torch.nn.Module):
    """What a ResNet gives, from one layer."""

    dimension = 8

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, self.dimension, 8, 8)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.conv1(pixels)
        return maps

    def pooled(self, pixels: torch.Tensor) -> torch.Tensor:
        return self(pixels).mean((2, 3))


def put_tiny(cache: Path, patch: pytest.MonkeyPatch) -> None:
    """As `put`, with one layer of 32 pixels in the place of ResNets: whole tests take seconds."""
    put(cache, patch, resnets=())
    for name in ("resnet50", "resnet152"):
        torch.save(_TinyResNet().state_dict(), cache / "weights" / f"{name}.pth")
        known = dataclasses.replace(NETWORKS[name], build=_TinyResNet, size=32)
        patch.setitem(NETWORKS, name, known)


def bert(folder: Path) -> None:
    """A tiny BERT with word pieces of its own."""
    from transformers import BertConfig, BertModel

    BertModel(BertConfig(vocab_size=len(PIECES), **_TINY)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")


def vit(folder: Path) -> None:
    """A tiny ViT that sees 32 pixels a side."""
    from transformers import ViTConfig, ViTModel

    ViTModel(ViTConfig(image_size=32, patch_size=16, **_TINY)).save_pretrained(folder)


def timm() -> types.ModuleType:
    """The package `timm` with one network, whatever it is called."""
    made: Any = types.ModuleType("timm")
    made.list_models = lambda pretrained: []
    made.is_model = lambda name: True
    made.create_model = lambda name, pretrained, num_classes: FakeTimm()
    return made  # type: ignore[no-any-return]


def xvlm(root: Path) -> None:
    """ROOT/weights/x-vlm-4m by `simgrad import`, as the recipe's head says."""
    root.mkdir(exist_ok=True)
    content = published_files.checkpoint("x-vlm", small("x-vlm"))
    file = published_files.write(root / "x-vlm-4m.pth", content)
    pieces = [*PIECES, *(f"##{i}" for i in range(1, WORDS))][:WORDS]
    (root / "vocab.txt").write_text("\n".join(pieces) + "\n")
    import_checkpoint(file, root / "weights" / "x-vlm-4m", vocabulary=root / "vocab.txt")
