"""Weighted means of sorted values: (n, k, d) sets and (n, k) weights of ranks -> (n, d) vectors.

On a GPU with Triton one kernel ranks and weighs (`pooling_kernels.py`); sorting, and sending
gradients back where they belong, costs many times as much. Everywhere else values are sorted.
Of equal values either may get the gradient of a rank.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from simgrad.core import gpu
from simgrad.models.networks.layers import valid

# Sets for which comparing all with all is cheaper than sorting.
_LARGEST = 128
_WIDE = 32
_KERNELS = "simgrad.models.networks.pooling_kernels"


def pool_sorted(features: Tensor, mask: Tensor | None, weights: Tensor) -> Tensor:
    """The weights, of one set or of each, are zero for ranks that a set does not have."""
    if _suits(features, mask, weights):
        features, weights = features.contiguous(), weights.float().contiguous()
        there = None if mask is None else mask.contiguous().view(torch.uint8)
        ranked: Callable[..., Tensor] = RankedPool.apply
        try:
            # Triton starts kernels on the current device.
            with torch.cuda.device_of(features):  # type: ignore[no-untyped-call]
                pooled = ranked(features, there, weights)
            gpu.ran(_call(features, mask, weights))
            return pooled
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler may raise: sorting still works
            gpu.give_up(_KERNELS, "pooling of sets", error)
    if mask is not None:  # What is not there is sorted behind what is.
        features = features.masked_fill(~mask[:, :, None], -torch.inf)
    # Sorts are fast along the last axis, and in half precision where values come in it.
    ordered = features.transpose(1, 2).sort(dim=-1, descending=True).values  # (n, d, k)
    if mask is not None:  # It weighs nothing; as zero it is no part of that weight's gradient.
        ordered.masked_fill_(~valid(mask.sum(1), mask.shape[1])[:, None], 0.0)
    if len(weights) == 1:
        return ordered @ weights[0].to(ordered.dtype)
    return (ordered @ weights[:, :, None].to(ordered.dtype)).squeeze(-1)


def _suits(features: Tensor, mask: Tensor | None, weights: Tensor) -> bool:
    return (
        features.is_cuda
        and features.shape[1] <= _LARGEST
        and features.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and gpu.capable(features.device)
        and gpu.ready(_KERNELS, _call(features, mask, weights))
    )


def _call(features: Tensor, mask: Tensor | None, weights: Tensor) -> tuple[Any, ...]:
    """What decides which kernels are compiled: sizes of sets do not, so one set warms up all."""
    needed = torch.is_grad_enabled() and (features.requires_grad or weights.requires_grad)
    return (
        _KERNELS, features.dtype, features.device, features.shape[2], _places(features),
        mask is None, needed,
    )  # fmt: skip


def _places(features: Tensor) -> int:
    return 64 if features.shape[1] <= 64 else _LARGEST


class RankedPool(torch.autograd.Function):
    """The kernels, forward and backward."""

    @staticmethod
    def forward(context: Any, features: Tensor, mask: Tensor | None, weights: Tensor) -> Tensor:

        n, k, d = features.shape
        needed = any(context.needs_input_grad)
        pooled = features.new_empty(n, d, dtype=torch.float32)
        ranks = features.new_empty((n, k, d) if needed else (0,), dtype=torch.uint8)
        launch: Any = gpu.kernels(_KERNELS).pool[(n, -(-d // _WIDE))]
        launch(
            features, features if mask is None else mask, weights, pooled, ranks,
            k, d, _stride(weights),
            MASKED=mask is not None, RANKED=needed, PLACES=_places(features), WIDE=_WIDE,
        )  # fmt: skip
        context.save_for_backward(features, mask, weights, ranks)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(context: Any, above: Tensor) -> tuple[Tensor, None, Tensor]:  # type: ignore[override]

        features, mask, weights, ranks = context.saved_tensors
        n, k, d = features.shape
        blocks = -(-d // _WIDE)
        of_features = torch.empty_like(features)
        parts = weights.new_empty(blocks, n, k)
        launch: Any = gpu.kernels(_KERNELS).pool_backward[(n, blocks)]
        launch(
            features, features if mask is None else mask, weights, ranks, above.contiguous(),
            of_features, parts, k, d, _stride(weights),
            MASKED=mask is not None, PLACES=_places(features), WIDE=_WIDE,
        )  # fmt: skip
        own = parts.sum((0, 1))[None] if len(weights) == 1 else parts.sum(0)
        return of_features, None, own


def _stride(weights: Tensor) -> int:
    """From one set's weights to the next one's; none if all share them."""
    return weights.stride(0) if len(weights) > 1 else 0
