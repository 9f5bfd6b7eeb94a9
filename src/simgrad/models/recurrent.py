"""GRUs in half precision whose gradients do not vanish.

Under autocast a GPU runs recurrent layers in float16, also where bfloat16 was asked for. Gradients
of an objective that takes means are small enough to be lost there: below 6e-8 a float16 is zero. A
GRU's backward pass is linear in what comes from above, so that is brought near one on its way in,
and what leaves the layer is brought back. Nothing is tuned, nothing can be forgotten.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

# Half-precision products are fast where rows begin at multiples of 16 bytes; 300-wide word vectors
# do not.
_ALIGNED = 8
# They are cast and padded anew each time, as they must be.
warnings.filterwarnings("ignore", message="RNN module weights are not part", module=__name__)


def gru_states(rnn: nn.GRU, x: Tensor) -> Tensor:
    """(m, L, d) -> (m, L, hidden): the states of a one-layer GRU after every step."""
    if not (x.is_cuda and torch.is_autocast_enabled("cuda")):
        states: Tensor = rnn(x)[0]
        return states
    return scaled_states(rnn, x)


def scaled_states(rnn: nn.GRU, x: Tensor, kind: torch.dtype = torch.float16) -> Tensor:
    """`rnn(x)[0]` in `kind`, its backward pass in numbers near one."""
    size: list[Tensor] = []  # filled when the backward pass comes by
    leave: Callable[..., Tensor] = _Leave.apply
    enter: Callable[..., Tensor] = _Enter.apply
    x, *weights = (leave(each, kind, size) for each in (x, *rnn.all_weights[0]))
    more = -x.shape[-1] % _ALIGNED
    if more:  # zeros times zeros: nothing changes
        x, weights[0] = pad(x, (0, more)), pad(weights[0], (0, more))
    start = x.new_zeros(1, len(x), rnn.hidden_size)
    states, _ = torch._VF.gru(  # type: ignore[attr-defined]  # what nn.GRU itself calls
        x, start, weights, True, 1, 0.0, rnn.training, False, True
    )
    return enter(states, size)


class _Enter(torch.autograd.Function):
    """The gradient enters the layer: divided by its largest entry, rounded to a power of two."""

    @staticmethod
    def forward(context: Any, states: Tensor, size: list[Tensor]) -> Tensor:
        context.size, context.kind = size, states.dtype
        return states.float()  # so that the gradient arrives in float32

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        largest = torch.linalg.vector_norm(gradient, torch.inf)
        largest = largest.clamp_min_(1e-30).log2_().floor_().exp2_()
        context.size[:] = [largest]
        scaled = torch.empty_like(gradient, dtype=context.kind)
        return torch.div(gradient, largest, out=scaled), None


class _Leave(torch.autograd.Function):
    """Into half precision; the gradient leaves the layer back at its own size."""

    @staticmethod
    def forward(context: Any, x: Tensor, kind: torch.dtype, size: list[Tensor]) -> Tensor:
        context.size, context.kind = size, x.dtype
        return x.to(kind)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        # One dimension, or a tensor in half precision would make the product one as well.
        return (gradient * context.size[0].view(1)).to(context.kind), None, None
