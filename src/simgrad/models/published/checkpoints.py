"""Published checkpoints: what is in them, and which of our models each one is.

VSE++, VSRN, SCAN, BFAN and VSE-infinity save {epoch, model: [image encoder, text encoder],
best_rsum, opt, Eiters}; X-VLM saves {model: state, config}. Files are read as tensors and plain
data only. The names of the weights say what the model is; its options say the rest.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.models.base import Inputs, ModelConfig, RetrievalModel, build
from simgrad.models.networks.parts import stored_parts
from simgrad.models.published.file import Published, State
from simgrad.models.published.maps import MAPS
from simgrad.models.unpickle import read_tensors


@dataclass(frozen=True)
class Imported:
    """A published checkpoint as one of our models."""

    model: RetrievalModel
    facts: dict[str, Any]
    left_out: str | None  # what the file has and the model has not


def read_published_checkpoint(path: str | Path) -> Published:
    """Open a file and check that it has the published layout."""
    path = Path(path)
    content = read_tensors(path)
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: holds a {type(content).__name__}, not a checkpoint.")
    model = content.get("model", content)
    options = content.get("opt", content.get("config", {}))
    options = vars(options) if isinstance(options, argparse.Namespace) else options
    options = options if isinstance(options, dict) else {}
    facts = {name: _number(content.get(name)) for name in ("epoch", "best_rsum", "Eiters")}
    facts = {name: value for name, value in facts.items() if value is not None}
    if isinstance(model, list | tuple):
        if len(model) < 2:
            raise InputError(
                f"{path}: partial; 'model' must hold the image encoder and the text encoder, "
                f"and it holds {len(model)} of them."
            )
        return Published(path, _state(model[0], path), _state(model[1], path), options, facts)
    state = _state(model, path)
    if not any(name.startswith("vision_encoder.") for name in state):
        raise InputError(
            f"{path}: no 'model' with an image and a text encoder, and no 'vision_encoder': not a "
            f"checkpoint of a known model (it has {', '.join(map(str, list(content)[:5]))})."
        )
    return Published(path, state, {}, options, facts)


def _state(part: Any, path: Path) -> State:
    """Weights by name, without the prefix that parallel training adds."""
    if not isinstance(part, dict) or not part:
        raise InputError(f"{path}: an encoder without weights.")
    state: State = {}
    for name, tensor in part.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise InputError(f"{path}: {name!r:.60} is not a named weight.")
        state[".".join(piece for piece in name.split(".") if piece != "module")] = tensor
    return state


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def recognise(published: Published) -> str:
    """Which of our models a checkpoint is, by the names of its weights."""
    image, text = published.image, published.text
    if any(name.startswith("vision_encoder.") for name in image):
        return "x-vlm"
    if any(name.startswith("Rs_GCN_") for name in image):
        return "vsrn"
    if any("gpool." in name for name in image):
        return "vse-infinity"
    if "fc.weight" not in image and "fc.weight_v" not in image:
        raise InputError(f"{published.path}: partial; the image encoder has no 'fc.weight'.")
    if "rnn.weight_ih_l0_reverse" not in text:
        return "vse++"
    if "focal_type" in published.options:
        return "bfan"
    if "cross_attn" in published.options:
        return "scan"
    raise InputError(
        f"{published.path}: SCAN or BFAN, but without the options that say which; "
        "give --model scan or --model bfan."
    )


def convert(published: Published, name: str | None = None) -> Imported:
    """A published checkpoint to our model; `name` where the file does not say which."""

    name = name or recognise(published)
    if name not in MAPS:
        known = ", ".join(MAPS)
        raise InputError(f"--model {name}: checkpoints are imported of {known}.")
    mapping: Callable[[Published], tuple[ModelConfig, Inputs, State, str | None]] = MAPS[name]
    config, inputs, state, left_out = mapping(published)
    with stored_parts({}):  # the file brings all weights: pretrained ones are not needed
        model = build(config, inputs)
    _fill(model, state, published.path)
    options = {key: value for key, value in published.options.items() if _plain(value)}
    facts = {**published.facts, "options": options, "file": published.path.name}
    return Imported(model.eval(), facts, left_out)


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _fill(model: RetrievalModel, state: State, path: Path) -> None:
    wanted = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    missing = [name for name in wanted if name not in state]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(
            f"{path}: partial; nothing in it for {', '.join(missing[:3])}{more} of {model.config}."
        )
    wrong = [name for name in wanted if state[name].shape != wanted[name].shape]
    if wrong:
        name = wrong[0]
        raise InputError(
            f"{path}: '{name}' is {tuple(state[name].shape)}, where {model.config} has "
            f"{tuple(wanted[name].shape)}."
        )
    extra = [name for name in state if name not in model.state_dict()]
    if extra:
        raise InputError(f"{path}: '{extra[0]}' has no place in {model.config}.")
    model.load_state_dict(state, strict=False)
