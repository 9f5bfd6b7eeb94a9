"""Pretrained parts: their settings travel in a checkpoint, so loading one needs no hub.

A part that was made from a pretrained network keeps the settings it was built with in
`part_settings`. A checkpoint stores them by the part's place in the model; while a checkpoint
is loaded, parts are built from what it stored and their weights are left to the checkpoint.
"""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.models.unpickle import read_tensors

_stored: ContextVar[dict[str, Any] | None] = ContextVar("stored", default=None)


@contextlib.contextmanager
def stored_parts(settings: dict[str, Any]) -> Iterator[None]:
    """Build parts from `settings` and load no weights within the block."""
    token = _stored.set(settings)
    try:
        yield
    finally:
        _stored.reset(token)


def loading() -> bool:
    """True while a checkpoint is being loaded: its weights follow, so fetch none."""
    return _stored.get() is not None


def stored(kind: str) -> dict[str, Any] | None:
    """The stored settings of one kind of part, while a checkpoint is being loaded."""
    settings = (_stored.get() or {}).get(kind)
    return settings if isinstance(settings, dict) else None


def recorded(model: nn.Module) -> dict[str, Any]:
    """The settings of every pretrained part of a model, by kind."""
    found: dict[str, Any] = {}
    for module in model.modules():
        settings = getattr(module, "part_settings", None)
        if settings is not None:
            found[module.part_kind] = settings  # type: ignore[index]  # both are set together
    return found


# What is fetched of a network: tokenizers and older formats of weights where there are any.
_FILES = (
    "config.json",
    "preprocessor_config.json",
    "model.safetensors",
    "pytorch_model.bin",
    "tokenizer.json",
    "vocab.txt",
    # processors and tokenizers of dual encoders, weights in several files
    "processor_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "model.safetensors.index.json",
    "model-*.safetensors",
    "modules.json",
    "1_Pooling/config.json",
)


# The same of open_clip: settings, weights, older weights.
OPEN_CLIP = ("open_clip_config.json", "open_clip_model.safetensors", "open_clip_pytorch_model.bin")


# What a person has to put into the folder of a network that reads captions.
WITH_TOKENIZER = "config.json, model.safetensors and tokenizer.json"


def weights_place() -> Path:
    """Where a user may put pretrained weights, so that every model finds them by their name."""
    cache = os.environ.get("SIMGRAD_CACHE")
    return (Path(cache) if cache else Path.home() / ".cache" / "simgrad") / "weights"


def _cached_folder(source: str) -> Path:
    """The place of a part by its name on the hub: google/vit-b16 lies in google--vit-b16."""
    return weights_place() / source.replace("/", "--")


def _local(source: str) -> Path | None:
    places = (Path(source).expanduser(), _cached_folder(source))
    return next((folder for folder in places if folder.is_dir()), None)


def here(source: str | None) -> bool:
    """Whether a pretrained part can be had without a network: no part always can."""
    if source is None or _local(source) is not None:
        return True
    try:
        from huggingface_hub import try_to_load_from_cache

        names = ("config.json", OPEN_CLIP[0])
        return any(isinstance(try_to_load_from_cache(source, name), str) for name in names)
    except (ImportError, ValueError):  # no package; a name that the hub cannot have
        return False


def where_to_put(source: str, files: str) -> str:
    """What a person does who has no network: which files of the hub, and where to."""
    return f"Put {files} of https://huggingface.co/{source} into {_cached_folder(source)}"


def pretrained_folder(source: str, option: str, wanted: str = "") -> Path:
    """The folder of a pretrained part: a local one, the cache's, or the hub's by that name.

    `wanted` names the files that a person has to put there, where it is not the usual ones.
    """
    folder = _local(source) or _from_hub(source, option, wanted)
    if not any((folder / name).is_file() for name in ("config.json", OPEN_CLIP[0])):
        raise InputError(f"{option}={source}: no config.json in {folder}.")
    return folder


def _from_hub(source: str, option: str, wanted: str) -> Path:
    if source.startswith((".", "/", "~")):
        raise InputError(f"{option}={source}: there is no such folder.")
    todo = where_to_put(source, wanted or "config.json and model.safetensors")
    message = (
        f"{option}={source}: neither a folder here nor available from the hub. {todo}, or into "
        f"another folder and give {option}=FOLDER, or {option}=none to start untrained."
    )
    try:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(source, allow_patterns=list(_FILES)))
        if not (folder / "config.json").is_file():
            folder = Path(snapshot_download(source, allow_patterns=[*_FILES, *OPEN_CLIP]))
        return folder
    except Exception as error:  # no package, no network, no such name: one answer serves all
        raise InputError(f"{message} ({type(error).__name__})") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers shows no bars for what takes a moment, and tells nothing that we check."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a pretrained folder; a pickle is read as tensors only."""
    safe, old = folder / "model.safetensors", folder / "pytorch_model.bin"
    if safe.is_file():
        from safetensors.torch import load_file

        return dict(load_file(safe))
    if old.is_file():
        values = read_tensors(old)
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if isinstance(value, Tensor)}
    raise InputError(f"{folder}: neither model.safetensors nor pytorch_model.bin in it.")
