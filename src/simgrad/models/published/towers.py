"""A pair of towers as transformers' VisionTextDualEncoder, where it can be one."""

from pathlib import Path
from typing import Any

import torch

from simgrad.core.files import write_json
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.networks.parts import quiet
from simgrad.models.networks.zoo import TransformersNetwork
from simgrad.models.published.transformers import (
    add_modules,
    plain_network,
    require_sentence_transformers,
    write_network,
)


def exports_as_pair(model: Any) -> str:
    """Why it cannot be written so; nothing where it can.

    That model reads both networks at their poolers and has linear projections.
    """
    network = None if model.image is None else model.image.network
    if not isinstance(network, TransformersNetwork):
        return "its image network is not of transformers"
    if not network.by_pooler:
        return "its image network is read elsewhere than at its pooler"
    if getattr(model.text, "pooling", None) != "pooler":
        return "its text network is read elsewhere than at its pooler"
    return "its projections have a hidden layer" if model.config.hidden else ""


def write_pair(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Weights, config, processor and tokenizer."""
    import transformers

    vision, text = plain_network(model.image.network.model), plain_network(model.text.net)
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
        vision.config, text.config, projection_dim=model.config.dimension
    )
    with quiet():
        pair = transformers.VisionTextDualEncoderModel(config, vision, text)
    with torch.no_grad():
        pair.visual_projection.weight.copy_(model.image_projection.weight)
        pair.text_projection.weight.copy_(model.text_projection.weight)
    write_network(pair, folder)
    _write_processing(model, tokenizer, folder)
    transformers.VisionTextDualEncoderProcessor(
        transformers.AutoImageProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        ),
        transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        ),
    ).save_pretrained(folder)


def write_pair_modules(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """The same, with the modules that sentence-transformers runs."""
    require_sentence_transformers()
    write_pair(model, tokenizer, folder)
    add_modules(folder, {"text": {"max_length": model.longest, "truncation": True}})


def _write_processing(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    image, words = model.image, tokenizer.to_json()["tokenizer"]
    kind, *_, smooth = image.transform.split(":") if ":" in image.transform else ("crop", "bicubic")
    mean, std = image.network.mean_std
    size: dict[str, Any] = {"height": image.size, "width": image.size}
    crop = kind == "crop"
    pictures = {
        "image_processor_type": "CLIPImageProcessor" if crop else "ViTImageProcessor",
        "size": {"shortest_edge": _short(image.transform, image.size)} if crop else size,
        "do_center_crop": crop,
        "resample": {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}[smooth],
        "image_mean": list(mean),
        "image_std": list(std),
        **({"crop_size": size} if crop else {}),
    }
    write_json(folder / "preprocessor_config.json", pictures)
    write_json(folder / "tokenizer.json", words)
    special = {token["content"] for token in words.get("added_tokens", []) if token.get("special")}
    names = {"pad": ("[PAD]", "<pad>"), "unk": ("[UNK]", "<unk>"), "cls": ("[CLS]", "<s>"),
             "sep": ("[SEP]", "</s>"), "mask": ("[MASK]", "<mask>")}  # fmt: skip
    found = {f"{k}_token": t for k, v in names.items() for t in v if t in special}
    write_json(
        folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **found}
    )


def _short(transform: str, size: int) -> int:
    parts = transform.split(":")
    return int(parts[1]) if len(parts) == 3 else size
