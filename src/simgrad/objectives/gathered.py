"""A batch that lies on several processes, gathered by each of them.

For rules that must see all queries at once, for positives that lie on different processes, and to
compare with. Every process does all of the work and holds the whole batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.base import Objective
from simgrad.objectives.engine.ring import Transport
from simgrad.objectives.engine.tensors import attach
from simgrad.objectives.pairs import Offline
from simgrad.objectives.positives import Positives


class Share(NamedTuple):
    """What one process has of a batch; positives, weights and pairs to ignore count its own
    images."""

    images: Tensor
    texts: Tensor
    positives: "Tensor | Positives | None" = None
    offline: Offline | None = None
    ignore: Tensor | None = None
    weights: Tensor | None = None


def weigh_gathered(
    objective: Objective, share: Share, transport: Transport, factor: float, joint: bool = False
) -> Tensor:
    """The loss of the whole batch; `factor` times the gradient of the own share is attached.

    `joint`: the positives and pairs to ignore are those of the whole batch, not of the share.
    """
    parts = [transport.gather(x.detach()) for x in (share.images, share.texts)]
    every = [torch.cat(some).requires_grad_() for some in parts]
    positives, ignore, weights = share.positives, share.ignore, share.weights
    if not joint:
        weights = _weights(share, parts, transport)
        positives = _positives(share, parts, transport)
        ignore = _ignored(share, parts, transport)
    drawn = None
    if share.offline is not None:
        drawn = Offline(*(_cat(x.detach(), transport).requires_grad_() for x in share.offline))
    given_scale = [x for x in objective.affine() if x is not None and x.requires_grad]
    learned = [p for p in objective.parameters() if p.requires_grad] or given_scale
    with torch.enable_grad():
        loss = objective(every[0], every[1], positives, drawn, ignore=ignore, weights=weights)
    wanted = [*every, *(drawn or ()), *learned]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    gradients: list[Tensor | None] = []
    given = [share.images, share.texts, *(share.offline or ())]
    for own, gradient in zip(given, found, strict=False):
        first = _starts(transport.gather(own.new_zeros(len(own), 1)))[transport.rank]
        gradients.append(None if gradient is None else gradient[first : first + len(own)] * factor)
    # What all processes share gets its gradient in parts.
    shares = (g if g is None else g * (factor / transport.size) for g in found[len(given) :])
    return attach(loss.detach(), [*given, *learned], [*gradients, *shares])


def _cat(rows: Tensor, transport: Transport) -> Tensor:
    return torch.cat(transport.gather(rows))


def _positives(
    share: Share, parts: list[list[Tensor]], transport: Transport
) -> "Tensor | Positives":
    images, texts = share.images, share.texts
    own = share.positives
    if own is None:
        if len(images) != len(texts):
            raise InputError(
                f"distributed: {len(images)} images and {len(texts)} texts: give `positives`."
            )
        own = torch.arange(len(images), device=images.device)
    if isinstance(own, Positives):
        own = own.i2t.mask()
    if own.dtype != torch.bool:
        firsts = _starts(parts[0])
        every = zip(transport.gather(own.long()), firsts, strict=True)
        return torch.cat([torch.where(p < 0, p, p + first) for p, first in every])
    pairs = _pairs(own.nonzero(), parts, transport)
    mask = own.new_zeros(sum(map(len, parts[0])), sum(map(len, parts[1])))
    mask[pairs[:, 0], pairs[:, 1]] = True
    return Positives.of_mask(mask)


def _ignored(share: Share, parts: list[list[Tensor]], transport: Transport) -> Tensor | None:
    own = share.ignore
    there = transport.sum(share.images.new_tensor([float(own is not None)]))
    if not float(there):
        return None
    if own is None:
        own = torch.zeros((0, 2), dtype=torch.long, device=share.images.device)
    return _pairs(own.nonzero() if own.dtype == torch.bool else own.long(), parts, transport)


def _weights(share: Share, parts: list[list[Tensor]], transport: Transport) -> Tensor | None:
    """The weights of the whole batch's pairs, as a matrix."""
    images, texts, own = len(share.images), len(share.texts), share.weights
    if not float(transport.sum(share.images.new_tensor([float(own is not None)]))):
        return None
    mine = share.images.new_ones(images, texts) if own is None else own.detach().to(share.images)
    matrix = mine.new_zeros(sum(map(len, parts[0])), sum(map(len, parts[1])))
    every = torch.ones(images, texts, dtype=torch.bool, device=mine.device).nonzero()
    place = _pairs(every, parts, transport)
    matrix[place[:, 0], place[:, 1]] = _cat(mine.expand(images, texts).flatten(), transport)
    return matrix


def _pairs(own: Tensor, parts: list[list[Tensor]], transport: Transport) -> Tensor:
    """Pairs (k, 2) of every process, counted in the whole batch."""
    firsts = zip(_starts(parts[0]), _starts(parts[1]), strict=True)
    gathered = transport.gather(own)
    return torch.cat([p + p.new_tensor(first) for p, first in zip(gathered, firsts, strict=True)])


def _starts(parts: list[Tensor]) -> list[int]:
    counts = [len(part) for part in parts]
    return [sum(counts[:k]) for k in range(len(counts))]
