"""GRUs in half precision whose gradients neither vanish nor overflow.

Under autocast a GPU runs recurrent layers in float16, also where bfloat16 was asked for. Gradients
of an objective that takes means are small enough to be lost there: below 6e-8 a float16 is zero. A
GRU's backward pass is linear in what comes from above, so that is brought near one on its way in,
and what leaves the layer is brought back. Nothing is tuned, nothing can be forgotten.

At a high learning rate a GRU's gradient may for a step or two be a hundred thousand times as large
at its inputs as at its end (SigLIP at 2.6e-3, in float32, where the clip makes that harmless). What
is too large for a float16 is cut off: as infinity it would turn the weights into nan.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

# Half-precision products are fast where rows begin at multiples of 16 bytes; 300-wide word vectors
# do not.
_ALIGNED = 8
# Added to what opens a gate: its sigmoid is then one, exactly, and its slope zero.
_OPEN = 1000.0
# They are cast and padded again each time, as they must be.
warnings.filterwarnings("ignore", message="RNN module weights are not part", module=__name__)


def gru_states(rnn: nn.GRU, x: Tensor) -> Tensor:
    """(m, L, d) -> (m, L, hidden): the states of a GRU's last layer after every step."""
    if not in_half_precision(x):
        states: Tensor = rnn(x)[0]
        return states
    return scaled_states([rnn], x)


def gru_state_at(rnn: nn.GRU, x: Tensor, step: Tensor) -> Tensor:
    """(m, L, d) and a step of each sequence -> (m, hidden): the state after that step."""
    if not in_half_precision(x):
        return _at(gru_states(rnn, x), step).squeeze(1)
    return scaled_states([rnn], x, step=step).squeeze(1)


def _at(states: Tensor, step: Tensor) -> Tensor:
    """(m, L, ...) -> (m, 1, ...)"""
    shape = states.shape[2:]
    return states.gather(1, step.view(-1, 1, *(1 for _ in shape)).expand(-1, 1, *shape))


def in_half_precision(x: Tensor) -> bool:
    """Whether GRUs run in float16 here."""
    return x.is_cuda and torch.is_autocast_enabled("cuda")


def scaled_states(
    ways: Sequence[nn.GRU],
    x: Tensor,
    absent: Tensor | None = None,
    kind: torch.dtype = torch.float16,
    step: Tensor | None = None,
    joined: bool = False,
) -> Tensor:
    """A GRU's states in `kind`, its backward pass in numbers near one; after one `step`, if given.

    Of two GRUs, of one layer each, the second reads from the end; their states are averaged, or
    `joined` side by side. Steps marked `absent` leave the state as it is: an input of their own,
    which has no other weight, opens the update gate all the way. So one call runs both ways, and
    nothing is turned around.
    """
    size: list[Tensor] = []  # filled when the backward pass comes by
    leave: Callable[..., Tensor] = _Leave.apply
    enter: Callable[..., Tensor] = _Enter.apply
    hidden, layers = ways[0].hidden_size, ways[0].num_layers
    x = leave(x, kind, size)
    weights = [leave(w, kind, size) for rnn in ways for layer in rnn.all_weights for w in layer]
    more = -x.shape[-1] % _ALIGNED
    if absent is not None:
        more = more or _ALIGNED
        flags, gates = x.new_zeros(*absent.shape, more), x.new_zeros(3 * hidden, more)
        flags[:, :, 0] = absent
        gates[hidden : 2 * hidden, 0].fill_(_OPEN)
        x = torch.cat([x, flags], dim=2)
        weights[::4] = [torch.cat([each, gates], dim=1) for each in weights[::4]]
    elif more:  # zeros times zeros: nothing changes
        x, weights[0] = pad(x, (0, more)), pad(weights[0], (0, more))
    start = x.new_zeros(len(ways) * layers, len(x), hidden)
    states, _ = torch._VF.gru(  # type: ignore[attr-defined]  # what nn.GRU itself calls
        x, start, weights, True, layers, 0.0, ways[0].training, len(ways) == 2, True
    )
    states = states.view(*states.shape[:2], len(ways), hidden)
    # One state of each is taken here: all of them would be cast, and their zeros scaled.
    return enter(states if step is None else _at(states, step), size, joined)


class _Enter(torch.autograd.Function):
    """The gradient enters the layer: divided by its largest entry, rounded to a power of two."""

    @staticmethod
    def forward(context: Any, states: Tensor, size: list[Tensor], joined: bool) -> Tensor:
        """(m, L, ways, hidden) -> (m, L, hidden): the mean of all ways; joined, all of them."""
        context.size, context.kind, context.ways = size, states.dtype, states.shape[2]
        context.joined = joined or context.ways == 1
        # In float32, so that the gradient arrives in it.
        return states.flatten(2).float() if context.joined else states.mean(2, dtype=torch.float32)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        largest = torch.linalg.vector_norm(gradient, torch.inf)
        largest = largest.clamp_min_(1e-30).log2_().floor_().exp2_()
        context.size[:] = [largest if context.joined else largest / context.ways]
        if context.joined:
            each = gradient.reshape(*gradient.shape[:2], context.ways, -1)
        else:
            each = gradient[:, :, None].expand(-1, -1, context.ways, -1)
        scaled = torch.empty(each.shape, dtype=context.kind, device=gradient.device)
        return torch.div(each, largest, out=scaled), None, None


class _Leave(torch.autograd.Function):
    """Into half precision; the gradient leaves the layer back at its own size."""

    @staticmethod
    def forward(context: Any, x: Tensor, kind: torch.dtype, size: list[Tensor]) -> Tensor:
        context.size, context.kind = size, x.dtype
        return x.to(kind)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        # One dimension, or a tensor in half precision would make the product one as well.
        gradient = gradient.nan_to_num()  # a nan from above stays one: it is in the size
        return (gradient * context.size[0].view(1)).to(context.kind), None, None
