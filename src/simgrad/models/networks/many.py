"""VSE++'s encoders for several models at once: grouped products, and a backward pass by hand.

Models of one shape, each with its own weights, read batches of their own. Every layer is one
product for all of them, and a GRU's recurrent weights get their gradient as one product over all
steps instead of a sum of one for each. In half precision the layers run in what they run in alone:
linear layers in bfloat16, GRUs in float16 with gradients near one (see recurrent.py).
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.core.gpu import capable, installed, kernels

_ALIGNED = 8  # numbers: half-precision products are fast where rows begin at multiples of 16 bytes
_SHORTEST = 1e-12  # what a shorter vector is divided by
_WIDE = 256  # columns that a program of a kernel works on
IMAGE = ("fc.weight", "fc.bias")
WORDS = "text.embed.weight"
GRU = tuple(f"text.rnn.{part}_l0" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
Weights = dict[str, Tensor]  # by a parameter's name, those of all models: (models, *shape)


class Gradient(NamedTuple):
    """A parameter's gradient in all models."""

    value: Tensor  # (models, *shape)
    size: Tensor | None = None  # (models,) what it is to be multiplied by


class UnitVectors(NamedTuple):
    """Vectors of unit length, and how long they were."""

    vectors: Tensor
    length: Tensor

    @staticmethod
    def of(x: Tensor) -> "UnitVectors":
        x = x if x.dtype == torch.float64 else x.float()
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(_SHORTEST)
        return UnitVectors(x / length, length)

    def backward(self, above: Tensor) -> Tensor:
        along = (above * self.vectors).sum(-1, keepdim=True)
        return torch.addcmul(above, self.vectors, along, value=-1).div_(self.length)


class ManyVse:
    """`forward` encodes a batch of each model; `backward` gives the weights' gradients."""

    def __init__(self, *, half: bool, feature_norm: bool, fused: bool | None = None) -> None:
        self.half, self.feature_norm = half, feature_norm
        self.fused = fused  # by Triton's kernels; None: where they run

    def forward(
        self,
        weights: Weights,
        images: Tensor,
        tokens: Tensor,
        lengths: Tensor,
        rows: "StepRows | None" = None,
    ) -> tuple[Tensor, Tensor]:
        """(g, n, features), (g, m, L), (g, m) -> (g, n, d) and (g, m, d), all of unit length.

        `rows`: what a step of the GRU works on; None: all captions.
        """
        x = UnitVectors.of(images).vectors if self.feature_norm else images
        kind = torch.bfloat16 if self.half else images.dtype
        weight, bias = (weights[name].to(kind) for name in IMAGE)
        x = x.to(kind)
        self.image = UnitVectors.of(torch.baddbmm(bias[:, None], x, weight.transpose(1, 2)))
        self.images = x
        self.text = Gru(weights, self.half, self._fuses(images.device))
        self.caption = UnitVectors.of(self.text.forward(weights[WORDS], tokens, lengths, rows))
        return self.image.vectors, self.caption.vectors

    def backward(self, images: Tensor, captions: Tensor) -> dict[str, Gradient]:
        """Gradients of the vectors (g, n, d) and (g, m, d) -> of every parameter."""
        above = self.image.backward(images).to(self.images.dtype)
        found = {
            IMAGE[0]: Gradient(torch.bmm(above.transpose(1, 2), self.images)),
            IMAGE[1]: Gradient(above.sum(1, dtype=self.image.vectors.dtype)),
        }
        return found | self.text.backward(self.caption.backward(captions))

    def forget(self) -> None:
        """What `backward` needs of `forward`. Captured work does not ask for it: what is captured
        next may lie in the same memory, since a step's two parts follow each other."""
        del self.image, self.images, self.caption, self.text

    def _fuses(self, device: torch.device) -> bool:
        if self.fused is not None:
            return self.fused
        return device.type == "cuda" and installed() and capable(device)


class StepRows(NamedTuple):
    """What the steps of a GRU work on: one row for each caption whose word is read.

    Captions come in order of their length, the longest first, so that a step works on the first
    few alone. A row that is there although its caption has ended changes nothing.
    """

    counts: tuple[int, ...]  # of the captions that the t-th step works on; they fall
    parts: tuple[slice, ...]  # the rows of each step
    caption: Tensor  # (rows,) by length
    step: Tensor  # (rows,)

    @staticmethod
    def of(counts: Sequence[int], device: torch.device) -> "StepRows":
        ends = list(accumulate(counts))
        parts = tuple(slice(end - count, end) for end, count in zip(ends, counts, strict=True))
        caption = [k for count in counts for k in range(count)]
        step = [t for t, count in enumerate(counts) for _ in range(count)]
        return StepRows(
            tuple(counts), parts, *(torch.tensor(x, device=device) for x in (caption, step))
        )


class Gru:
    """Word vectors and a GRU of one layer: the state after each caption's last word."""

    def __init__(self, weights: Weights, half: bool, fused: bool) -> None:
        self.kind = torch.float16 if half else weights[GRU[0]].dtype
        self.half, self.fused = half, fused
        self.inputs = weights[GRU[0]].shape[2]
        more = -self.inputs % _ALIGNED if half else 0
        self.w_input = torch.nn.functional.pad(weights[GRU[0]].to(self.kind), (0, more))
        self.w_state = weights[GRU[1]].to(self.kind)  # (g, 3 hidden, hidden)
        self.biases = weights[GRU[2]], weights[GRU[3]]  # (g, 3 hidden)

    def forward(
        self, words: Tensor, tokens: Tensor, lengths: Tensor, rows: "StepRows | None" = None
    ) -> Tensor:
        """(g, words, d), (g, m, L), (g, m) -> (g, m, hidden)"""
        g, m, steps = tokens.shape
        hidden = self.w_state.shape[2]
        self.rows = rows = rows or StepRows.of((m,) * steps, tokens.device)
        self.lengths, self.order = lengths.sort(dim=1, descending=True, stable=True)
        place = self.order[:, rows.caption] * steps + rows.step
        first = torch.arange(g, device=tokens.device).mul_(words.shape[1])
        self.index, self.words = tokens.flatten(1).gather(1, place) + first[:, None], words.shape
        x = words.flatten(0, 1)[self.index].to(self.kind)
        self.x = torch.nn.functional.pad(x, (0, self.w_input.shape[2] - self.inputs))
        inputs = torch.bmm(self.x, self.w_input.transpose(1, 2))  # (g, rows, 3 hidden)
        self.states = inputs.new_empty(g, inputs.shape[1], hidden)  # before each step
        self.states[:, rows.parts[0]] = 0
        self.gates = inputs.new_empty(g, inputs.shape[1], 4 * hidden)  # reset, update, new, state's
        last = self.biases[0].new_zeros(g, m, hidden)
        cell = cell_by_kernel if self.fused else cell_plain
        for t, here in enumerate(rows.parts):
            states = torch.bmm(self.states[:, here], self.w_state.transpose(1, 2))
            after = self.states[:, rows.parts[t + 1]] if t + 1 < steps else self.states[:, :0]
            cell(t, self.lengths, inputs[:, here], states, *self.biases, self.states[:, here],
                 after, last, self.gates[:, here])  # fmt: skip
        return torch.empty_like(last).scatter_(1, self._everywhere(hidden), last)

    def _everywhere(self, width: int) -> Tensor:
        """(g, m, width) the captions in order of their length."""
        return self.order[:, :, None].expand(-1, -1, width)

    def backward(self, above: Tensor) -> dict[str, Gradient]:
        """`above`: the gradient of the states after the last words, (g, m, hidden)."""
        above = above.gather(1, self._everywhere(above.shape[2]))
        size: Tensor | None = None
        if self.half:  # by its largest entry, rounded to a power of two
            size = above.abs().amax((1, 2)).clamp_min_(1e-30).log2_().floor_().exp2_()
            above = above / size[:, None, None]
        g, rows, hidden = self.states.shape
        of_inputs = self.gates.new_empty(g, rows, 3 * hidden)
        of_states = torch.empty_like(of_inputs)
        kept = torch.zeros_like(above)  # of the state before, what does not go through a product
        back = self.gates.new_zeros(g, 0, hidden)
        cell = cell_back_by_kernel if self.fused else cell_back_plain
        for t, here in reversed(list(enumerate(self.rows.parts))):
            cell(t, self.lengths, above, kept, back, self.states[:, here], self.gates[:, here],
                 of_inputs[:, here], of_states[:, here])  # fmt: skip
            if t:
                back = torch.bmm(of_states[:, here], self.w_state)
        of_words = self._of_words(torch.bmm(of_inputs, self.w_input), size)
        products = torch.bmm(of_inputs.transpose(1, 2), self.x)[:, :, : self.inputs]
        wide = above.dtype
        return {
            WORDS: Gradient(of_words),
            GRU[0]: Gradient(self._finite(products), size),
            GRU[1]: Gradient(self._finite(torch.bmm(of_states.transpose(1, 2), self.states)), size),
            GRU[2]: Gradient(of_inputs.sum(1, dtype=wide), size),
            GRU[3]: Gradient(of_states.sum(1, dtype=wide), size),
        }

    def _finite(self, x: Tensor) -> Tensor:
        """What is too large for a float16 is cut off."""
        return x.nan_to_num() if self.half else x

    def _of_words(self, x: Tensor, size: Tensor | None) -> Tensor:
        """(g, rows, d) -> (g, words, d)"""
        g, words, d = self.words
        if size is not None:
            x = x[:, :, :d].float().nan_to_num_() * size[:, None, None]
        found: Tensor = torch.ops.aten.embedding_dense_backward(
            x.reshape(-1, d), self.index.reshape(-1), g * words, -1, False
        )
        return found.view(g, words, d)


# One step of a GRU, for all rows of all models: in plain PyTorch, and by kernels.


def cell_plain(
    step: int,
    lengths: Tensor,  # (g, m)
    inputs: Tensor,  # (g, rows, 3 hidden), the products with the step's words
    products: Tensor,  # (g, rows, 3 hidden), with the state before
    b_input: Tensor,  # (g, 3 hidden)
    b_state: Tensor,
    before: Tensor,  # (g, rows, hidden)
    after: Tensor,  # (g, at most so many rows, hidden), to be written
    last: Tensor,  # (g, m, hidden), to be written where the step's word is the last
    gates: Tensor,  # (g, rows, 4 hidden), to be written: reset, update, new, state's part of new
) -> None:
    wide, rows = b_input.dtype, inputs.shape[1]
    xr, xz, xn = (inputs.to(wide) + b_input[:, None]).chunk(3, -1)
    hr, hz, hn = (products.to(wide) + b_state[:, None]).chunk(3, -1)
    reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    new = torch.tanh(xn + reset * hn)
    state = (new + update * (before - new)).to(before.dtype)
    after.copy_(state[:, : after.shape[1]])
    ends = (lengths[:, :rows] == step + 1)[..., None]
    last[:, :rows] = torch.where(ends, state.to(wide), last[:, :rows])
    gates.copy_(torch.cat([reset, update, new, hn], -1))


def cell_back_plain(
    step: int,
    lengths: Tensor,  # (g, m)
    above: Tensor,  # (g, m, hidden), of the states after the last words
    kept: Tensor,  # (g, m, hidden), what came by no product; changed
    back: Tensor,  # (g, at most so many rows, hidden), what came by the product
    before: Tensor,  # (g, rows, hidden)
    gates: Tensor,
    of_inputs: Tensor,  # (g, rows, 3 hidden), to be written
    of_products: Tensor,
) -> None:
    wide, rows = above.dtype, before.shape[1]
    reset, update, new, hn = gates.to(wide).chunk(4, -1)
    here = kept[:, :rows] + above[:, :rows] * (lengths[:, :rows] == step + 1)[..., None]
    here[:, : back.shape[1]] += finite(back.to(wide), back.dtype)
    dz = here * (before.to(wide) - new) * update * (1 - update)
    dn = here * (1 - update) * (1 - new * new)
    dr = dn * hn * reset * (1 - reset)
    of_inputs.copy_(finite(torch.cat([dr, dz, dn], -1), of_inputs.dtype))
    of_products.copy_(finite(torch.cat([dr, dz, dn * reset], -1), of_products.dtype))
    torch.mul(here, update, out=kept[:, :rows])


def finite(x: Tensor, kind: torch.dtype) -> Tensor:
    """Cut off what is too large for `kind`, where that is half precision."""
    largest = torch.finfo(kind).max
    return x.clamp(-largest, largest) if kind == torch.float16 else x


def _grid(x: Tensor) -> tuple[int, int]:
    hidden = x.shape[2]
    return x.shape[0] * x.shape[1], -(-hidden // _WIDE)


def cell_by_kernel(
    step: int,
    lengths: Tensor,
    inputs: Tensor,
    products: Tensor,
    b_input: Tensor,
    b_state: Tensor,
    before: Tensor,
    after: Tensor,
    last: Tensor,
    gates: Tensor,
) -> None:
    module = kernels("simgrad.models.networks.many_kernels")
    module.cell[_grid(before)](
        lengths, inputs, products, b_input, b_state, before, after, last, gates,
        step, before.shape[1], after.shape[1], last.shape[1], before.shape[2],
        inputs.stride(0), before.stride(0), gates.stride(0), WIDE=_WIDE,
    )  # fmt: skip


def cell_back_by_kernel(
    step: int,
    lengths: Tensor,
    above: Tensor,
    kept: Tensor,
    back: Tensor,
    before: Tensor,
    gates: Tensor,
    of_inputs: Tensor,
    of_products: Tensor,
) -> None:
    module = kernels("simgrad.models.networks.many_kernels")
    module.cell_back[_grid(before)](
        lengths, above, kept, back, before, gates, of_inputs, of_products,
        step, before.shape[1], back.shape[1], above.shape[1], before.shape[2],
        before.stride(0), gates.stride(0), of_inputs.stride(0),
        LARGEST=torch.finfo(of_inputs.dtype).max, WIDE=_WIDE,
    )  # fmt: skip
