"""A fine-tuned CLIP, written as open_clip reads it: `local-dir:FOLDER` or a hub's `hf-hub:NAME`."""

from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.networks.dual import Dual
from simgrad.models.networks.open_clip import CONFIG, WEIGHTS, to_open_clip
from simgrad.models.published.transformers import plain_network, write_processing


def write_open_clip(dual: Dual, tokenizer: Tokenizer, folder: Path) -> None:
    """Weights, config and tokenizer."""
    from safetensors.torch import save_file

    vision, text = dual.net.config.vision_config, dual.net.config.text_config
    model = {
        "embed_dim": dual.net.config.projection_dim,
        "quick_gelu": _activation(vision, text),
        "vision_cfg": {
            **_tower(vision),
            "head_width": vision.hidden_size // vision.num_attention_heads,
            "image_size": vision.image_size,
            "patch_size": vision.patch_size,
        },
        "text_cfg": {
            **_tower(text),
            "heads": text.num_attention_heads,
            "context_length": text.max_position_embeddings,
            "vocab_size": text.vocab_size,
            "hf_tokenizer_name": ".",  # the one in the folder
            **_end(text),
        },
    }
    state = to_open_clip(plain_network(dual.net).state_dict())
    write_json(folder / CONFIG, {"model_cfg": model, "preprocess_cfg": _pictures(dual)})
    save_file({name: value.contiguous().clone() for name, value in state.items()}, folder / WEIGHTS)
    write_processing(dual.reading, dual.family, tokenizer, folder)


def _tower(config: Any) -> dict[str, Any]:
    if config.layer_norm_eps != 1e-5:
        raise InputError(f"layer_norm_eps is {config.layer_norm_eps}, and 1e-5 in open_clip.")
    return {
        "width": config.hidden_size,
        "layers": config.num_hidden_layers,
        "mlp_ratio": config.intermediate_size / config.hidden_size,
    }


def _activation(vision: Any, text: Any) -> bool:
    acts = {vision.hidden_act, text.hidden_act}
    if len(acts) > 1 or not acts <= {"gelu", "quick_gelu"}:
        raise InputError(f"open_clip has one activation for both towers, not {sorted(acts)}.")
    return acts == {"quick_gelu"}


def _end(text: Any) -> dict[str, Any]:
    """Where a caption is read: at its largest number, unless the end is another one.

    2 stands for the largest in configurations of OpenAI's CLIP, as transformers takes it.
    """
    if text.eos_token_id in (2, text.vocab_size - 1):
        return {}
    return {"pool_type": "eos", "eos_id": text.eos_token_id}


def _pictures(dual: Dual) -> dict[str, Any]:
    reading = dual.reading
    kind, *short, smooth = (
        reading.transform.split(":") if ":" in reading.transform
        else ("centre", str(reading.size), "bicubic")
    )  # fmt: skip
    if kind != "squeeze" and short != [str(reading.size)]:
        raise InputError(
            f"its pictures are scaled to {short[0]} pixels and cut to {reading.size}, and "
            "open_clip does both to one size: take another format."
        )
    if smooth not in ("bicubic", "bilinear"):
        raise InputError(f"its pictures are scaled by {smooth}, which open_clip does not know.")
    return {
        "size": reading.size,
        "mean": list(reading.mean),
        "std": list(reading.std),
        "interpolation": smooth,
        "resize_mode": "squash" if kind == "squeeze" else "shortest",
    }
