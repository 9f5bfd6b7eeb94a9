"""Where a Swin's weights come from: a checkpoint, a folder or the hub, or nowhere yet."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.models.networks.parts import pretrained_folder, read_weights, stored
from simgrad.models.networks.swin import Swin, SwinSettings


def swin(source: str | None, settings: SwinSettings) -> Swin:
    """A Swin: stored in a checkpoint that is being loaded, pretrained, or untrained."""
    kept = stored("swin")
    if kept is not None:
        return Swin(_settings(kept))
    if source is None:
        return Swin(settings)
    folder = pretrained_folder(source, "swin")
    model = Swin(_config(folder, settings.size))
    state = from_transformers(read_weights(folder))
    missing = [name for name in model.state_dict() if name not in state]
    if missing:
        raise InputError(f"{folder}: not a complete Swin; {missing[0]} and others are missing.")
    model.load_state_dict(state, strict=False)
    return model


def _settings(values: dict[str, Any]) -> SwinSettings:
    lists = {name: tuple(values[name]) for name in ("depths", "heads")}
    return SwinSettings(**{**values, **lists})


def _config(folder: Path, size: int) -> SwinSettings:
    values = read_json(folder / "config.json")
    try:
        return SwinSettings(
            size=size,
            width=values["embed_dim"],
            depths=tuple(values["depths"]),
            heads=tuple(values["num_heads"]),
            window=values["window_size"],
        )
    except (KeyError, TypeError):
        raise InputError(f"{folder}/config.json: not the settings of a Swin.") from None


# transformers' names -> the published ones
_NAMES = (
    ("embeddings.patch_embeddings.projection.", "patch_embed.proj."),
    ("embeddings.norm.", "patch_embed.norm."),
    ("encoder.layers.", "layers."),
    (".layernorm_before.", ".norm1."),
    (".layernorm_after.", ".norm2."),
    (".attention.self.relative_position_bias_table", ".attn.relative_position_bias_table"),
    (".attention.output.dense.", ".attn.proj."),
    (".intermediate.dense.", ".mlp.fc1."),
    (".output.dense.", ".mlp.fc2."),
)


def from_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """transformers' names of Swin's weights -> the published ones, which are ours."""
    found: dict[str, Tensor] = {}
    for given, tensor in state.items():
        name = given.removeprefix("swin.")
        name = name.replace("layernorm.", "norm.") if name.startswith("layernorm.") else name
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        found[name] = tensor
    for name in [name for name in found if ".attention.self.query." in name]:
        parts = [found.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        found[name.replace("attention.self.query", "attn.qkv")] = torch.cat(parts)
    return found
