"""Any dual encoder of transformers: its get_text_features and get_image_features.

CLIP and SigLIP are models of simgrad (`clip(source=...)`), which can also be trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.models.embedders.base import (
    Embedder,
    as_rows,
    embedders,
    folder_content,
    folder_or_name,
    refused,
)
from simgrad.models.networks.parts import quiet


@embedders.declare(
    "transformers",
    paper="https://huggingface.co/docs/transformers",
    description="a dual encoder of transformers with get_text_features and get_image_features",
)
@dataclass(frozen=True)
class DualEmbedder(Embedder):
    """By folder or name."""

    source: str = setting("", "folder or hub name")

    @torch.no_grad()
    def texts(self, sentences: Sequence[str], device: torch.device) -> Tensor:
        model, processor = _load(folder_or_name(self.source), str(device))
        longest = getattr(model.config, "text_config", model.config)
        most = getattr(longest, "max_position_embeddings", None)
        read = processor(text=list(sentences), padding=True, truncation=True, max_length=most,
                         return_tensors="pt").to(device)  # fmt: skip
        return as_rows(_pooled(model.get_text_features(**read)), len(sentences), str(self))

    @torch.no_grad()
    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        model, processor = _load(folder_or_name(self.source), str(device))
        read = processor(images=list(pictures), return_tensors="pt").to(device)
        return as_rows(_pooled(model.get_image_features(**read)), len(pictures), str(self))

    def content(self) -> str | None:
        return folder_content(self.source)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        cards = ("preprocessor_config.json", "processor_config.json")
        return (folder / "config.json").is_file() and any((folder / c).is_file() for c in cards)


def _pooled(made: Any) -> Any:
    """Newer versions give an output with the pooled vector in it."""
    return made if isinstance(made, Tensor) else made.pooler_output


@lru_cache(maxsize=2)
def _load(source: str, device: str) -> tuple[Any, Any]:
    import transformers

    try:
        with quiet():
            model = transformers.AutoModel.from_pretrained(source, trust_remote_code=False)
            processor = transformers.AutoProcessor.from_pretrained(source, trust_remote_code=False)
            model = model.to(device).eval()
    except Exception as error:  # of the hub, of files, of packages that it needs
        raise refused(source, error) from None
    for half in ("get_text_features", "get_image_features"):
        if not hasattr(model, half):
            raise InputError(f"{source}: {type(model).__name__} has no {half}: no dual encoder.")
    return model, processor
