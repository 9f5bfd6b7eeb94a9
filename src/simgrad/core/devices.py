"""Devices, and what they lack: Apple's `mps` has no float64.

Nothing that lies on a device may need float64. Sums that gain from it are taken as wide as the
device can, with `widened`; what goes to numpy is brought to the CPU first.
"""

import torch
from torch import Tensor

from simgrad.core.errors import InputError

_WITHOUT_FLOAT64 = {"mps"}


def pick_device(name: str) -> torch.device:
    """`auto` is an NVIDIA GPU where there is one, else the CPU; Apple's `mps` is named."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device: '{name}' is not auto, cpu, cuda, cuda:N or mps.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: {name} was asked for, but this PyTorch sees no GPU.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"device: {name} was asked for, but this PyTorch sees no Apple GPU.")
    return device


def widest(device: torch.device) -> torch.dtype:
    """The floating point type of most digits."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def widened(values: Tensor) -> Tensor:
    """In float64, where its device has it."""
    return values.to(widest(values.device))


def random_state(device: torch.device) -> list[Tensor]:
    """The state of each generator that a computation on this device uses, the CPU's first."""
    if device.type == "cuda":
        return [torch.get_rng_state(), torch.cuda.get_rng_state(device)]
    if device.type == "mps":
        return [torch.get_rng_state(), torch.mps.get_rng_state()]
    return [torch.get_rng_state()]


def set_random_state(state: list[Tensor], device: torch.device) -> None:
    """The inverse of `random_state`."""
    torch.set_rng_state(state[0])
    for saved in state[1:]:
        if device.type == "cuda":
            torch.cuda.set_rng_state(saved, device)
        else:
            torch.mps.set_rng_state(saved)
