"""ResNet and VGG without their classifiers; weights are named as torchvision names them.

He et al., Deep residual learning, CVPR 2016 (with the stride on the 3 x 3 convolution, as all
published weights have it); Simonyan and Zisserman, Very deep convolutional networks, ICLR 2015.
Ours and not transformers': VSE++'s own checkpoints and torchvision's files have these names, and so
have ours, whatever transformers calls its weights tomorrow; transformers has no VGG.
"""

import re

import torch
from torch import Tensor, nn
from torch.nn import functional

RESNETS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
# Channels of VGG-19's convolutions; 0 halves the resolution.
_VGG19 = (64, 64, 0, 128, 128, 0, *[256] * 4, 0, *[512] * 4, 0, *[512] * 4, 0)


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        inner = functional.relu(self.bn2(self.conv2(inner)), inplace=True)
        out = self.bn3(self.conv3(inner)) + self.downsample(x)
        return functional.relu(out, inplace=True)


class ResNet(nn.Module):
    """ResNet-50, -101 or -152 up to its last map of 2,048 channels."""

    dimension = 2048

    def __init__(self, depth: int = 50) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for number, blocks in enumerate(RESNETS[depth]):
            inner = 64 << number
            layers: list[nn.Module] = []
            for block in range(blocks):
                stride = 2 if block == 0 and number > 0 else 1
                layers.append(_Bottleneck(channels, inner, stride))
                channels = 4 * inner
            self.add_module(f"layer{number + 1}", nn.Sequential(*layers))

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 2048, h / 32, w / 32)"""
        x = functional.relu(self.bn1(self.conv1(pixels)), inplace=True)
        x = functional.max_pool2d(x, 3, 2, 1)
        for number in range(1, 5):
            x = self.get_submodule(f"layer{number}")(x)
        return x

    def pooled(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 2048)"""
        return torch.mean(self(pixels), dim=(2, 3))


class Vgg19(nn.Module):
    """VGG-19 with its two hidden layers of 4,096; the last map, before them, has 512 channels."""

    dimension = 4096
    grid_dimension = 512

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for outputs in _VGG19:
            if outputs == 0:
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            channels = outputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 512, h / 32, w / 32)"""
        out: Tensor = self.features(pixels)
        return out

    def pooled(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 4096)"""
        maps = functional.adaptive_avg_pool2d(self(pixels), 7)
        out: Tensor = self.classifier(maps.flatten(1))
        return out


_STAGE = re.compile(r"encoder\.stages\.(\d+)\.layers\.(\d+)\.(?:layer\.(\d+)|shortcut)\.(.*)")


def torchvision_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """ResNet weights under `transformers`' names, renamed as torchvision names them."""
    return {_torchvision_name(name): value for name, value in state.items()}


def _torchvision_name(name: str) -> str:
    name = name.removeprefix("resnet.")
    match = _STAGE.fullmatch(name)
    if match is None:
        name = name.replace("embedder.embedder.convolution", "conv1")
        return name.replace("embedder.embedder.normalization", "bn1")
    stage, block, conv, rest = match.groups()
    place = f"layer{int(stage) + 1}.{block}"
    if conv is None:
        rest = rest.replace("convolution", "0").replace("normalization", "1")
        return f"{place}.downsample.{rest}"
    number = int(conv) + 1
    rest = rest.replace("convolution", f"conv{number}").replace("normalization", f"bn{number}")
    return f"{place}.{rest}"
