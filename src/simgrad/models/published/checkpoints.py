"""Published checkpoints: what is in them, and which of our models each one is.

VSE++, VSRN, SCAN, BFAN and VSE-infinity save {epoch, model: [image encoder, text encoder],
best_rsum, opt, Eiters}; X-VLM saves {model: state, config}. Files are read as tensors and plain
data only. The names of the weights and the options say what the model is. Nothing is guessed, and
nothing is dropped: what a file does not say is asked for, and a weight that no model of ours reads
is refused.
"""

import argparse
import dataclasses
import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.spec import split_spec
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.base import Inputs, RetrievalModel, build, models
from simgrad.models.checkpoint import fill, refuse_misfits
from simgrad.models.networks.parts import stored_parts
from simgrad.models.published.file import Mapped, PublishedFile, PublishedPart, State
from simgrad.models.published.scan import bfan, scan
from simgrad.models.published.vse_infinity import vse_infinity
from simgrad.models.published.vsepp import vsepp
from simgrad.models.published.vsrn import vsrn
from simgrad.models.published.xvlm import xvlm
from simgrad.models.unpickle import read_tensors

MAPS: dict[str, Callable[[PublishedFile], Mapped]] = {
    "vse++": vsepp,
    "vsrn": vsrn,
    "vse-infinity": vse_infinity,
    "scan": scan,
    "bfan": bfan,
    "x-vlm": xvlm,
}


@dataclass(frozen=True)
class Imported:
    """A published checkpoint as one of our models."""

    model: RetrievalModel
    tokenizer: Tokenizer | None
    facts: dict[str, Any]
    left_out: str | None  # what the file has and the model has not


def read_published_checkpoint(path: str | Path) -> PublishedFile:
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
        image, text = (PublishedPart(path, _state(part, path)) for part in model[:2])
        return PublishedFile(path, image, text, options, facts)
    whole = PublishedPart(path, _state(model, path))
    if not whole.has("vision_encoder."):
        raise InputError(
            f"{path}: no 'model' with an image and a text encoder, and no 'vision_encoder': not a "
            f"checkpoint of a known model (it has {', '.join(map(str, list(content)[:5]))})."
        )
    return PublishedFile(path, whole, PublishedPart(path, {}), options, facts)


def _state(part: Any, path: Path) -> State:
    """Weights by name, without the prefix that parallel training adds."""
    if not isinstance(part, dict) or not part:
        raise InputError(f"{path}: an encoder without weights.")
    state: State = {}
    for name, tensor in part.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise InputError(f"{path}: {reprlib.repr(name)} is not a named weight.")
        short = ".".join(piece for piece in name.split(".") if piece != "module")
        if short in state:
            raise InputError(f"{path}: the weight '{short[:60]}' is in it twice.")
        state[short] = tensor
    return state


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def recognise(published: PublishedFile) -> str:
    """Which of our models a checkpoint is, by its options and the names of its weights."""
    image, text = published.image, published.text
    if image.has("vision_encoder."):
        return "x-vlm"
    if image.has("Rs_GCN_"):
        return "vsrn"
    if any("gpool." in name for name in image.names()):
        return "vse-infinity"
    if "fc.weight" not in image and "fc.weight_v" not in image:
        raise InputError(f"{published.path}: partial; the image encoder has no 'fc.weight'.")
    # SCAN's words may be read by the very GRU that VSE++ has: only its options tell.
    if "focal_type" in published.options:
        return "bfan"
    if "cross_attn" in published.options:
        return "scan"
    two_way = "rnn.weight_ih_l0_reverse" in text
    if not two_way and (published.options or image.has("cnn.")):
        return "vse++"
    which = ("scan", "bfan") if two_way else ("vse++", "scan")
    raise InputError(
        f"{published.path}: the options that tell {which[0]} from {which[1]} are not in it; give "
        f"`model={which[0]}` or `model={which[1]}`."
    )


def convert(
    published: PublishedFile, model: str | None = None, vocabulary: str | Path | None = None
) -> Imported:
    """A published checkpoint to our model.

    `model` is its name where the file does not say which it is; settings in it, as in
    `x-vlm(size=384)`, go before those of the file. `vocabulary` is what it was trained with.
    """
    name, given = _told(published, model)
    mapped = MAPS[name](dataclasses.replace(published, given=given))
    config = dataclasses.replace(mapped.config, **given)
    inputs, tokenizer = mapped.inputs, None
    if vocabulary is not None:
        tokenizer = _tokenizer(vocabulary, mapped)
        inputs = Inputs.of(inputs.images, inputs.image_shape, tokenizer)
    for part in (published.image, published.text):
        if part.untaken():
            raise InputError(
                f"{published.path}: the weight '{part.untaken()[0]}' has no place in {config} "
                f"({len(part.untaken())} such); it is another model, or a form of it that is not "
                "supported."
            )
    with stored_parts({}):  # the file brings all weights: pretrained ones are not needed
        refuse_misfits(config, inputs, mapped.state, published.path)
        built = build(config, inputs)
    fill(built, mapped.state, published.path)
    options = {key: value for key, value in published.options.items() if _plain(value)}
    facts = {**published.facts, "options": options, "file": published.path.name}
    tokenizer = None if tokenizer is None else tokenizer.cut(built.longest)
    return Imported(built.eval(), tokenizer, facts, mapped.left_out)


def _told(published: PublishedFile, model: str | None) -> tuple[str, dict[str, Any]]:
    """The model's name, and the settings that the user gave with it."""
    if model is None:
        return recognise(published), {}
    name, values = split_spec(model, "model")
    if name not in MAPS:
        raise InputError(f"`model={name}`: checkpoints are imported of {', '.join(MAPS)}.")
    config = models.parse(model)
    return name, {key: getattr(config, key) for key in values}


def _tokenizer(path: str | Path, mapped: Mapped) -> Tokenizer:
    """The vocabulary, with the words that a model's code adds to it if its weights have them."""
    needs, size = mapped.config.tokenizer_needs, mapped.inputs.vocabulary_size
    plain = dataclasses.replace(needs, added=()).read(path)
    tokenizer = plain if len(plain) == size else needs.read(path)
    if len(tokenizer) != size:
        raise InputError(
            f"{path}: {len(plain):,} words, but the checkpoint was trained with {size:,}; give the "
            "vocabulary it was trained with."
        )
    return tokenizer


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)
