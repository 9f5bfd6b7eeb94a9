"""The state to resume from: everything that decides the rest of a run, in one file.

One safetensors file holds tensors (weights, optimiser, random state) and, in its header, the
counters, the format's number and a checksum of all of it. It is written beside the old one and
renamed over it; the one before is kept, so a damaged file costs a minute, not the run.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.core.devices import random_state, set_random_state
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path
from simgrad.runs.run import FORMAT

STATE, PREVIOUS = "state.safetensors", "previous.safetensors"


class OtherVersion(InputError):
    """A state that another version of simgrad wrote."""


def save_state(folder: Path, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
    """Write the state atomically, keeping the one before."""
    from safetensors.torch import save

    plain = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    told = json.dumps(counters)
    header = {"format": str(FORMAT), "counters": told, "checksum": _checksum(plain, told)}
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / STATE) as path:
        # Not save_file: it has temporary files of its own, which a kill would leave behind.
        path.write_bytes(save(plain, metadata=header))
        if (folder / STATE).exists():
            os.replace(folder / STATE, folder / PREVIOUS)


def load_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], list[str]] | None:
    """The newest whole state and what was wrong with a newer one; None if there is none."""
    problems: list[str] = []
    for name in (STATE, PREVIOUS):
        if not (folder / name).exists():
            continue
        try:
            return *_read(folder / name), problems
        except OtherVersion:
            raise
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(
            f"{' '.join(problems)} There is nothing left to resume from: delete the folder "
            f"{folder} and give the same command, and the run begins again from its first step."
        )
    return None


def remembered(folder: Path) -> bool:
    """Whether there is a state: something to resume from, or to remove."""
    return any((folder / name).exists() for name in (STATE, PREVIOUS))


def forget(folder: Path) -> None:
    """Remove the states: nothing can be resumed then."""
    for name in (STATE, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import safe_open

    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except Exception as error:  # a damaged header makes the reader and torch raise nearly anything
        raise InputError(f"{path}: damaged, or not a state ({str(error)[:120]}).") from None
    if "format" not in header and header.keys() == {"counters", "checksum"}:
        _other_version(path, "1")
    told = header.get("counters", "")
    if header.get("checksum") != _checksum(tensors, told, header.get("format", "")):
        raise InputError(f"{path}: its contents do not match their checksum.")
    if header["format"] != str(FORMAT):
        _other_version(path, header["format"])
    counters: dict[str, Any] = json.loads(told)
    return tensors, counters


def _other_version(path: Path, format: str) -> None:
    raise OtherVersion(
        f"{path}: this run was stopped under another version of simgrad (format {format}, this one "
        f"writes {FORMAT}) and cannot be resumed by this one. Finish it with the version that "
        "run.json names, or train it again with another folder. What it has reached so far can "
        "be evaluated, reported and searched."
    )


def _checksum(tensors: dict[str, Tensor], counters: str, format: str = str(FORMAT)) -> str:
    digest = hashlib.blake2b(f"{format}\n{counters}\n".encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter number."""
    return {
        f"optimizer.{index}.{key}": value
        for index, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    shapes = [p.shape for group in optimizer.param_groups for p in group["params"]]
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            if value.dim() == 0 and key != "step" and shapes[int(index)] == (1,):
                value = value.reshape(1)  # of earlier versions, whose temperatures were scalars
            state.setdefault(int(index), {})[key] = value
    whole = optimizer.state_dict()
    optimizer.load_state_dict({"state": state, "param_groups": whole["param_groups"]})


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """The state of the random number generators."""
    names = ("random.cpu", f"random.{device.type}")
    return dict(zip(names, random_state(device), strict=False))  # a CPU has one alone


def restore_random(tensors: dict[str, Tensor], device: torch.device) -> None:
    """The inverse of `random_tensors`."""
    names = dict.fromkeys(("random.cpu", f"random.{device.type}"))
    set_random_state([tensors[name] for name in names if name in tensors], device)


def module_tensors(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    """A module's state under a prefix."""
    return {f"{prefix}.{name}": value for name, value in module.state_dict().items()}


def restore_module(prefix: str, module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """The inverse of `module_tensors`."""
    start = len(prefix) + 1
    own = {k[start:]: v for k, v in tensors.items() if k.startswith(prefix + ".")}
    module.load_state_dict(own)
