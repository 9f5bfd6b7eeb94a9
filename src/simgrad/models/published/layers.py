"""Layers that published checkpoints share, from their names to ours."""

import re

from simgrad.models.base import Inputs, ModelConfig
from simgrad.models.published.file import State

Mapped = tuple[ModelConfig, Inputs, State, str | None]
REGIONS = 36


def gru(part: State, theirs: str, ours: str) -> State:
    """A one-way GRU, and the way back of a two-way one."""
    found = {}
    for name, tensor in part.items():
        match = re.fullmatch(rf"{re.escape(theirs)}\.((?:weight|bias)_[ih]h_l0)(_reverse)?", name)
        if match:
            two_way = f"{theirs}.weight_ih_l0_reverse" in part
            way = "backward_." if match.group(2) else "onward." if two_way else ""
            found[f"{ours}.{way}{match.group(1)}"] = tensor
    return found


def plain(part: State, theirs: str, ours: str) -> State:
    """Everything under a name, under another."""
    start = f"{theirs}."
    return {
        f"{ours}.{name.removeprefix(start)}": tensor
        for name, tensor in part.items()
        if name.startswith(start) and not name.endswith("num_batches_tracked")
    }
