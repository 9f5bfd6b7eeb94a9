"""Weights into a model, and what to say where they do not fit."""

from pathlib import Path

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.models.base import Inputs, ModelConfig, RetrievalModel, build

State = dict[str, Tensor]
Shapes = dict[str, torch.Size]


def refuse_misfits(config: ModelConfig, inputs: Inputs, state: State, path: Path) -> None:
    """Compare the shapes of a model and of its weights before any memory is asked for: settings
    from a file may ask for more than there is."""
    try:
        with torch.device("meta"):
            shapes = _shapes(build(config, inputs))
    except InputError:
        raise
    except Exception:  # a model may compute while it is built; then the real one is compared
        return
    _compare(shapes, state, config, path)


def fill(model: RetrievalModel, state: State, path: Path) -> None:
    """Load weights; each must have its place, and each place its weight."""
    _compare(_shapes(model), state, model.config, path)
    for name, parameter in model.named_parameters():
        _check_numbers(name, state[name], parameter, path)
    model.load_state_dict(state, strict=False)


def _check_numbers(name: str, given: Tensor, parameter: Tensor, path: Path) -> None:
    """Whole numbers would be taken for weights without a word, and NaN found only in results."""
    if given.dtype.is_floating_point != parameter.dtype.is_floating_point:
        raise InputError(f"{path}: '{name}' holds {given.dtype}, not {parameter.dtype}.")
    if not bool(given.isfinite().all()):
        raise InputError(f"{path}: '{name}' holds NaN or infinity.")


def _shapes(model: RetrievalModel) -> Shapes:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def _compare(wanted: Shapes, state: State, config: ModelConfig, path: Path) -> None:
    # Old files have no batch counters, and nothing reads them.
    missing = [n for n in wanted if n not in state and not n.endswith("num_batches_tracked")]
    problems = [f"nothing in it for {name}" for name in missing]
    problems += [f"'{name}' has no place" for name in state if name not in wanted]
    problems += [
        f"'{name}' is {tuple(state[name].shape)}, not {tuple(wanted[name])}"
        for name in wanted
        if name in state and state[name].shape != wanted[name]
    ]
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        kind = "partial; " if missing else ""
        shown = "; ".join(problems[:3])
        raise InputError(f"{path}: {kind}does not fit {config}: {shown}{more}.")
