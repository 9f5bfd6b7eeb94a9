"""Three layers that a CPU can do faster than PyTorch asks it to: product, convolution, dropout.

All compute what PyTorch's own do. Elsewhere than on a CPU they are PyTorch's own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from simgrad.objectives.engine.tensors import is_transformed

_STEPS = 1 << 16  # a share is rounded to one of so many


def left_out(x: Tensor, share: float) -> Tensor:
    """A random share of the numbers becomes 0, and the others grow, so that the mean stays.

    PyTorch draws a number in double precision for each. Here a draw of 64 bits serves four.
    """
    cut = round(_STEPS * share)
    if not x.is_cpu or not cut:
        return F.dropout(x, share)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)  # -32768 to 32767, all as likely
    kept = (drawn >= cut - _STEPS // 2).to(x.dtype)
    return x * kept.mul_(_STEPS / max(1, _STEPS - cut))


class QuickLinear(nn.Linear):
    """A linear layer whose products oneDNN makes where that is faster.

    PyTorch asks MKL, which on processors of other makers uses half the width of their registers.
    """

    def forward(self, x: Tensor) -> Tensor:
        followed = x.requires_grad or self.weight.requires_grad
        if not _wide(x) or not _wide(self.weight) or (followed and x.dim() != 2):
            return super().forward(x)
        product: Callable[[Tensor, Tensor], Tensor] = _Product.apply
        out = product(x, self.weight)
        return out if self.bias is None else out + self.bias


class QuickConv(nn.Conv2d):
    """A convolution that oneDNN makes, where no gradient is wanted.

    PyTorch lets MKL make those of a few pictures on one thread, through a copy of every patch.
    """

    def quick(self, x: Tensor) -> bool:
        """Whether oneDNN makes it."""
        followed = x.requires_grad or self.weight.requires_grad
        return _onednn(x) and x.dim() == 4 and not followed

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not self.quick(input) or self.padding_mode != "zeros" or isinstance(self.padding, str):
            out: Tensor = super()._conv_forward(input, weight, bias)
            return out
        how = (self.stride, self.padding, self.dilation, self.groups)
        return quick_conv(input, weight, bias, *how)


def quick_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    most: float | None = None,
) -> Tensor:
    """oneDNN's convolution; `most`: what is below 0 or above it is cut off, in the same pass."""
    after = ("none", [], "") if most is None else ("hardtanh", [0.0, most], "")
    made = torch.ops.mkldnn._convolution_pointwise
    out: Tensor = made(x, weight, bias, padding, stride, dilation, groups, *after)
    return out


def quicken(network: nn.Module) -> None:
    """Make a network's own linear layers and convolutions quick ones, in place."""
    for module in network.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = QuickConv
        elif type(module) is nn.Linear:
            module.__class__ = QuickLinear


def _wide(x: Tensor) -> bool:
    """Whether oneDNN's product is the faster one."""
    return _onednn(x) and torch.backends.cpu.get_cpu_capability() == "AVX512"


def _onednn(x: Tensor) -> bool:
    """Whether oneDNN's operators take it. Compilers choose operators themselves, and transforms of
    torch.func know no derivative of these."""
    return (
        x.is_cpu
        and x.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch._C._is_tracing()
        and not is_transformed([x])
        and not torch.is_autocast_enabled(x.device.type)
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


class _Product(torch.autograd.Function):
    """x (n, inputs) with weight (outputs, inputs) -> (n, outputs)"""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight)
        return _product(x, weight)

    @staticmethod
    @once_differentiable
    def backward(context: Any, above: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = context.saved_tensors
        for_x, for_weight = context.needs_input_grad
        return (
            _product(above, weight.t().contiguous()) if for_x else None,
            _product(above.t().contiguous(), x.t().contiguous()) if for_weight else None,
        )


def _product(a: Tensor, b: Tensor) -> Tensor:
    """(n, k), (m, k) -> (n, m)"""
    # The operator that compiled programs call. `F.linear` of MKL-DNN tensors copies its result.
    out: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return out
