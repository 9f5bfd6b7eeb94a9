"""A fine-tuned dual encoder, written as `transformers` and `sentence-transformers` read it.

Low-rank changes are merged into the weights, or written alone as an adapter of peft. The processor
and the tokenizer are those that the pretrained folder came with.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.networks.dual import Dual
from simgrad.models.networks.parts import quiet
from simgrad.models.networks.processing import Reading


def write_transformers(dual: Dual, tokenizer: Tokenizer, folder: Path) -> None:
    """Weights, config, processor and tokenizer: `AutoModel.from_pretrained(folder)`."""
    write_network(plain_network(dual.net), folder)
    write_processing(dual.reading, dual.family, tokenizer, folder)


def write_network(net: Any, folder: Path) -> None:
    """Weights and config."""
    with quiet():
        net.save_pretrained(folder)


def write_adapter(dual: Dual, config: Any, source: str | None, folder: Path) -> None:
    """The low-rank changes alone, for the model that they belong to."""
    from peft import get_peft_model

    whole = {f"base_model.model.{name}": value for name, value in dual.net.state_dict().items()}
    base = type(dual.net)(dual.net.config)
    adapted = get_peft_model(base, config)
    adapted.load_state_dict(whole)
    for settings in adapted.peft_config.values():
        settings.base_model_name_or_path = source
    adapted.save_pretrained(folder)


def write_sentence_transformers(dual: Dual, tokenizer: Tokenizer, folder: Path) -> None:
    """The same, with the modules that sentence-transformers runs."""
    require_sentence_transformers()
    write_transformers(dual, tokenizer, folder)
    words: dict[str, Any] = {"max_length": dual.longest, "truncation": True}
    if dual.family != "clip":  # it learnt captions filled up to their full length
        words["padding"] = "max_length"
    how: dict[str, Any] = {"text": words}
    if dual.reading.patches:
        how["image"] = {
            "max_num_patches": dual.reading.patches,
            "patch_size": dual.reading.patch,
        }
    add_modules(folder, how)


def require_sentence_transformers() -> None:
    """Before anything is written."""
    try:
        import sentence_transformers  # noqa: F401
    except ImportError:
        raise InputError(
            "the format sentence-transformers needs that package, version 5.4 or later: "
            "`pip install 'sentence-transformers>=5.4'`."
        ) from None


def add_modules(folder: Path, how: dict[str, Any]) -> None:
    """To a folder of transformers, what sentence-transformers runs: the model, and unit length.

    `how`: settings of the processor for texts and for images.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Transformer

    with quiet():
        network = Transformer(str(folder), processing_kwargs=how)
        SentenceTransformer(modules=[network, Normalize()]).save(
            str(folder), create_model_card=False
        )


def plain_network(net: Any) -> Any:
    """A copy without low-rank changes: they are added to the weights beside them."""
    merged = copy.deepcopy(net)
    for module in merged.modules():
        merge: Callable[[], None] | None = getattr(module, "merge", None)
        if hasattr(module, "lora_A") and merge is not None:
            merge()
    state: dict[str, Tensor] = {
        name.replace(".base_layer", ""): value
        for name, value in merged.state_dict().items()
        if ".lora_" not in name
    }
    fresh = type(net)(net.config)
    fresh.load_state_dict(state)
    return fresh.eval()


def write_processing(reading: Reading, family: str, tokenizer: Tokenizer, folder: Path) -> None:
    """Processor and tokenizer, as they came; those of a model without a folder are made."""
    told = tokenizer.to_json()
    if "tokenizer" not in told:
        raise InputError(
            "its captions are words as simgrad cuts them, which no tokenizer of transformers does."
        )
    write_json(folder / "tokenizer.json", told["tokenizer"])
    made = _made(reading, family, told["tokenizer"]) if family in _PROCESSORS else {}
    if any("processor_config" in name for name in reading.beside):
        made.pop("preprocessor_config.json", None)
    beside = {**made, **reading.beside}
    for name, content in beside.items():
        write_json(folder / name, content)


_PROCESSORS = {"clip": "CLIPProcessor", "siglip": "SiglipProcessor"}


def _made(reading: Reading, family: str, tokenizer: dict[str, Any]) -> dict[str, Any]:
    kind, *_, smooth = reading.transform.split(":")
    kind = "crop" if kind == "centre" else kind
    size: dict[str, Any] = {"height": reading.size, "width": reading.size}
    pictures = {
        "image_processor_type": "CLIPImageProcessor" if kind == "crop" else "SiglipImageProcessor",
        "size": {"shortest_edge": reading.size} if kind == "crop" else size,
        "do_center_crop": kind == "crop",
        "resample": {"bilinear": 2, "bicubic": 3}[smooth],
        "image_mean": list(reading.mean),
        "image_std": list(reading.std),
    } | ({"crop_size": size} if kind == "crop" else {})
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "model_input_names": ["input_ids"],
    }
    known = json.dumps(tokenizer.get("added_tokens", []))
    words = {k: v for k, v in words.items() if not k.endswith("_token") or str(v) in known}
    processor = _PROCESSORS[family]
    return {
        "preprocessor_config.json": pictures | {"processor_class": processor},
        "tokenizer_config.json": words | {"processor_class": processor},
    }
