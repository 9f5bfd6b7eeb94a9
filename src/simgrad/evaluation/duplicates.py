"""Rows that are the same vector: two captions with one embedding, or a collapsed model.

Equal vectors have to tie. A matrix product does not promise that: the same two vectors may
come out with different last bits at the edge of a tile and in its middle. So equal rows are
found in the inputs, and their scores are copied from one another instead of trusted to agree.
"""

import functools
import itertools

import numpy as np
import torch
from torch import Tensor

from simgrad.core.devices import widened

# Enough places to tell different embeddings apart; rows that agree here are compared in full.
_PROBES = 32


def first_identical(*parts: Tensor, distinct: bool = False) -> Tensor | None:
    """For each row the first row that is identical in every part; None where all differ.

    `distinct`: no two rows are equal to the last bit, which is known already.

    Rows that are *all* equal within rounding (a collapsed model, whose encoder rounds a little
    differently from batch to batch) count as identical.
    """
    rows = [part.reshape(len(part), -1).detach() for part in parts]
    count = len(rows[0])
    if count < 2:
        return None
    if all(_collapsed(part) for part in rows):
        return torch.zeros(count, dtype=torch.int64, device=rows[0].device)
    if distinct:
        return None
    keys = functools.reduce(torch.add, [_keys(part, _PROBES) for part in rows])
    ordered = np.sort(keys.cpu().numpy())
    if (ordered[1:] != ordered[:-1]).all():
        return None
    first = _first_of_key(keys)
    own = torch.arange(count, device=first.device)
    repeated = torch.zeros(count, dtype=torch.bool, device=first.device)
    repeated[first[first != own]] = True
    suspects = ((first != own) | repeated).nonzero()[:, 0]
    full = functools.reduce(torch.add, [_keys(part[suspects], part.shape[1]) for part in rows])
    first = own.clone()
    first[suspects] = suspects[_first_of_key(full)]
    # A key may collide; the values themselves decide.
    later = (first != own).nonzero()[:, 0]
    for start in range(0, len(later), 4096):
        chunk = later[start : start + 4096]
        same = torch.ones(len(chunk), dtype=torch.bool, device=first.device)
        for part in rows:
            same &= (part[chunk] == part[first[chunk]]).all(dim=1)
        first[chunk[~same]] = chunk[~same]
    return None if torch.equal(first, own) else first


def _collapsed(rows: Tensor) -> bool:
    if not rows.is_floating_point():
        return bool((rows == rows[0]).all())
    near = 16 * torch.finfo(rows.dtype).eps * widened(rows[0]).norm()
    # The first rows decide in nearly every case, at no cost.
    steps = [0, *range(64, len(rows), 4096), len(rows)]
    return all(
        bool((rows[start:stop] - rows[0]).abs().amax() <= near)
        for start, stop in itertools.pairwise(steps)
    )


def _keys(rows: Tensor, places: int) -> Tensor:
    """A 64-bit key of each row, from `places` columns spread over it."""
    columns = torch.linspace(0, rows.shape[1] - 1, min(places, rows.shape[1])).long()
    generator = torch.Generator().manual_seed(len(columns))
    factors = torch.randint(-(2**62), 2**62, (len(columns),), generator=generator) * 2 + 1
    factors, columns = factors.to(rows.device), columns.to(rows.device)
    keys = []
    # What stays in a CPU's cache; a GPU has the room, and waits for the start of each operation.
    step = 2048 if rows.device.type == "cpu" else max(1, 2**23 // len(columns))
    for start in range(0, len(rows), step):
        values = rows[start : start + step, columns]
        if values.is_floating_point():
            values = (values if values.dtype == torch.float64 else values.float()) + 0.0  # no -0.0
            values = values.view(torch.int64 if values.dtype == torch.float64 else torch.int32)
        # Whole numbers wrap around, so the sum does not depend on its order.
        keys.append((values.long() * factors).sum(dim=1))
    return torch.cat(keys)


def _first_of_key(keys: Tensor) -> Tensor:
    """For each place the first place with the same key."""
    _, index, inverse = np.unique(keys.cpu().numpy(), return_index=True, return_inverse=True)
    return torch.from_numpy(index[inverse]).to(keys.device)
