"""open_clip's folders: the same CLIP under other names, read without open_clip.

open_clip_config.json says what the network is and how pictures are cut; the weights lie in
open_clip_model.safetensors or open_clip_pytorch_model.bin. Covered: a vision transformer that is
read at its class token, and a causal text transformer that is read at its last token, as OpenAI's
CLIP (layout of open_clip 3). All else is refused by name.
"""

import importlib.util
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.models.networks.parts import OPEN_CLIP
from simgrad.models.networks.pixels import CLIP_MEAN, CLIP_STD
from simgrad.models.networks.processing import Reading
from simgrad.models.unpickle import read_tensors

CONFIG, WEIGHTS, OLD_WEIGHTS = OPEN_CLIP

# Settings that are honoured, with open_clip's defaults; others are refused where they are on.
_MODEL = {"embed_dim", "quick_gelu", "vision_cfg", "text_cfg", "init_logit_scale"}
_VISION = {"image_size": 224, "layers": 12, "width": 768, "head_width": 64, "patch_size": 16,
           "mlp_ratio": 4.0, "pool_type": "tok", "pos_embed_type": "learnable"}  # fmt: skip
_TEXT = {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12,
         "mlp_ratio": 4.0, "pool_type": "argmax", "eos_id": 2, "pad_id": 0, "proj_type": "linear",
         "hf_tokenizer_name": None, "tokenizer_kwargs": None}  # fmt: skip
_FIXED: dict[str, tuple[Any, ...]] = {
    "vision_cfg.pool_type": ("tok",),
    "vision_cfg.pos_embed_type": ("learnable",),
    "text_cfg.pool_type": ("argmax", "eos"),
    "text_cfg.proj_type": ("linear",),
    "text_cfg.tokenizer_kwargs": (None, {}),
}
_PICTURES = {"size", "mode", "mean", "std", "interpolation", "resize_mode", "fill_color"}

# Places outside the layers: open_clip's name, transformers' name, whether one is the other turned.
_PLACES = (
    ("visual.class_embedding", "vision_model.embeddings.class_embedding", False),
    ("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight", False),
    ("visual.conv1.weight", "vision_model.embeddings.patch_embedding.weight", False),
    ("visual.ln_pre.weight", "vision_model.pre_layrnorm.weight", False),
    ("visual.ln_pre.bias", "vision_model.pre_layrnorm.bias", False),
    ("visual.ln_post.weight", "vision_model.post_layernorm.weight", False),
    ("visual.ln_post.bias", "vision_model.post_layernorm.bias", False),
    ("visual.proj", "visual_projection.weight", True),
    ("token_embedding.weight", "text_model.embeddings.token_embedding.weight", False),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight", False),
    ("ln_final.weight", "text_model.final_layer_norm.weight", False),
    ("ln_final.bias", "text_model.final_layer_norm.bias", False),
    ("text_projection", "text_projection.weight", True),
    ("logit_scale", "logit_scale", False),
)
_STACKS = (("visual.transformer.resblocks.", "vision_model.encoder.layers."),
           ("transformer.resblocks.", "text_model.encoder.layers."))  # fmt: skip
_PARTS = (("ln_1", "layer_norm1"), ("ln_2", "layer_norm2"), ("attn.out_proj", "self_attn.out_proj"),
          ("mlp.c_fc", "mlp.fc1"), ("mlp.c_proj", "mlp.fc2"))  # fmt: skip
_QKV = ("q_proj", "k_proj", "v_proj")


def is_open_clip(folder: Path) -> bool:
    """Whether a folder is open_clip's alone: one that transformers reads too is read by that."""
    if not (folder / CONFIG).is_file():
        return False
    plain = folder / "config.json"
    return not (plain.is_file() and "model_type" in read_json(plain))


def can_read(folder: Path) -> bool:
    """Whether a folder is open_clip's and covered here, with its words."""
    if not is_open_clip(folder) or not (folder / "tokenizer.json").is_file():
        return False
    try:
        read_config(folder)
    except InputError:
        return False
    return True


def read_config(folder: Path) -> tuple[dict[str, Any], Reading]:
    """Settings of transformers' CLIP, and how pictures are cut."""
    told, file = read_json(folder / CONFIG), folder / CONFIG
    model = told.get("model_cfg") if isinstance(told, dict) else None
    if not isinstance(model, dict):
        raise InputError(f"{file}: no 'model_cfg' in it.")
    settings, size = _settings(model, file)
    return settings, _pictures(told.get("preprocess_cfg") or {}, size, file)


def listed() -> dict[str, bool]:
    """Every model in the list of the installed open_clip, and whether it is covered here.

    The package is not imported; without it there are none.
    """
    found = importlib.util.find_spec("open_clip")
    places = (found.submodule_search_locations if found is not None else None) or ()
    files = sorted(file for place in places for file in Path(place).glob("model_configs/*.json"))
    return {file.stem: _covered(read_json(file), file) for file in files}


def _covered(model: dict[str, Any], file: Path) -> bool:
    try:
        return bool(_settings(model, file))
    except InputError:
        return False


def _settings(model: dict[str, Any], file: Path) -> tuple[dict[str, Any], int]:
    """Of transformers' CLIP; and the side of its pictures."""
    vision = _read(model, "vision_cfg", _VISION, file)
    text = _read(model, "text_cfg", _TEXT, file)
    for name, value in model.items():
        if name not in _MODEL and value:
            raise _refused(file, name, value)
    act = "quick_gelu" if model.get("quick_gelu") else "gelu"
    end = text["vocab_size"] - 1 if text["pool_type"] == "argmax" else text["eos_id"]
    if end == 2:  # which stands for the largest number in transformers
        raise _refused(file, "text_cfg.eos_id", end)
    settings = {
        "model_type": "clip",
        "projection_dim": model.get("embed_dim"),
        "vision_config": {
            **_tower(vision, vision["width"] // vision["head_width"], act),
            "image_size": vision["image_size"],
            "patch_size": vision["patch_size"],
        },
        "text_config": {
            **_tower(text, text["heads"], act),
            "vocab_size": text["vocab_size"],
            "max_position_embeddings": text["context_length"],
            "eos_token_id": end,
            "bos_token_id": max(0, end - 1),
            "pad_token_id": text["pad_id"],
        },
    }
    return settings, vision["image_size"]


def read_state(folder: Path) -> dict[str, Tensor]:
    """The weights under transformers' names."""
    if (folder / WEIGHTS).is_file():
        from safetensors.torch import load_file

        state = dict(load_file(folder / WEIGHTS))
    elif (folder / OLD_WEIGHTS).is_file():
        told = read_tensors(folder / OLD_WEIGHTS)
        told = told.get("state_dict", told) if isinstance(told, dict) else {}
        state = {k.removeprefix("module."): v for k, v in told.items() if isinstance(v, Tensor)}
    else:
        raise InputError(f"{folder}: neither {WEIGHTS} nor {OLD_WEIGHTS} in it.")
    return to_transformers(state, str(folder))


def to_transformers(state: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """open_clip's names to transformers'."""
    left, made = dict(state), {}
    for theirs, ours, turned in _PLACES:
        if theirs in left:
            value = left.pop(theirs).float()
            made[ours] = value.T.contiguous() if turned else value
    made["logit_scale"] = made.get("logit_scale", torch.tensor(0.0)).reshape(())
    for theirs, ours in _STACKS:
        for name in [n for n in left if n.startswith(theirs)]:
            number, _, part = name.removeprefix(theirs).partition(".")
            value, at = left[name].float(), f"{ours}{number}."
            inner = re.fullmatch(r"attn\.in_proj_(weight|bias)", part)
            if inner:
                for kind, piece in zip(_QKV, value.chunk(3), strict=True):
                    made[f"{at}self_attn.{kind}.{inner[1]}"] = piece.clone()
            elif renamed := _renamed(part, _PARTS):
                made[at + renamed] = value
            else:
                continue
            del left[name]
    if left:
        raise InputError(
            f"{where}: its weight '{min(left)}' belongs to a network that is not supported."
        )
    return made


def to_open_clip(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """transformers' names to open_clip's."""
    left, made = dict(state), {}
    for theirs, ours, turned in _PLACES:
        value = left.pop(ours)
        made[theirs] = value.T.contiguous() if turned else value
    back = tuple((ours, theirs) for theirs, ours in _PARTS)
    for theirs, ours in _STACKS:
        for name in [n for n in left if n.startswith(ours)]:
            number, _, part = name.removeprefix(ours).partition(".")
            at = f"{theirs}{number}."
            inner = re.fullmatch(r"self_attn\.q_proj\.(weight|bias)", part)
            if inner:
                three = [left[f"{ours}{number}.self_attn.{k}.{inner[1]}"] for k in _QKV]
                made[f"{at}attn.in_proj_{inner[1]}"] = torch.cat(three)
            elif renamed := _renamed(part, back):
                made[at + renamed] = left[name]
    return made


def _renamed(part: str, names: tuple[tuple[str, str], ...]) -> str | None:
    stem, _, end = part.rpartition(".")
    return next((f"{new}.{end}" for old, new in names if stem == old), None)


def _read(model: dict[str, Any], kind: str, known: dict[str, Any], file: Path) -> dict[str, Any]:
    told = model.get(kind)
    if not isinstance(told, dict):
        raise InputError(f"{file}: no '{kind}' in it.")
    for name, value in told.items():
        if (name not in known and value) or (value not in _FIXED.get(f"{kind}.{name}", (value,))):
            raise _refused(file, f"{kind}.{name}", value)
    found = {**known, **{k: v for k, v in told.items() if v is not None}}
    for name in ("layers", "width", "image_size", "patch_size", "context_length", "vocab_size"):
        if name in found and (not isinstance(found[name], int) or found[name] < 1):
            raise _refused(file, f"{kind}.{name}", found[name])
    return found


def _refused(file: Path, name: str, value: Any) -> InputError:
    return InputError(
        f"{file}: {name} = {value!r:.60} is of a network that simgrad does not read. "
        "It reads open_clip's vision transformers with causal text transformers (ViT-B-32 and "
        "its like); others by open_clip itself, open-clip(source=FOLDER), which are not trained, "
        "or in transformers' format, if they have one."
    )


def _tower(told: dict[str, Any], heads: int, act: str) -> dict[str, Any]:
    return {
        "hidden_size": told["width"],
        "intermediate_size": int(told["width"] * told["mlp_ratio"]),
        "num_hidden_layers": told["layers"],
        "num_attention_heads": heads,
        "hidden_act": act,
        "layer_norm_eps": 1e-5,
    }


def _pictures(told: dict[str, Any], size: int, file: Path) -> Reading:
    for name, value in told.items():
        if name not in _PICTURES:
            raise _refused(file, f"preprocess_cfg.{name}", value)
    smooth, mode = told.get("interpolation") or "bicubic", told.get("resize_mode") or "shortest"
    if smooth not in ("bicubic", "bilinear"):
        raise _refused(file, "preprocess_cfg.interpolation", smooth)
    if mode not in ("shortest", "squash"):
        raise _refused(file, "preprocess_cfg.resize_mode", mode)
    return Reading(
        size=size,
        transform=f"squeeze:{smooth}" if mode == "squash" else f"centre:{size}:{smooth}",
        mean=tuple(told.get("mean") or CLIP_MEAN),
        std=tuple(told.get("std") or CLIP_STD),
    )
