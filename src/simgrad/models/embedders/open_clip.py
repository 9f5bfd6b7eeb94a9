"""Any model of open_clip, by the package itself: its networks, its cut of pictures, its tokenizer.

Those that are a plain CLIP need no package and can be trained: `clip(source=...)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgrad.core.derived import contents_hash
from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.core.spec import setting
from simgrad.models.embedders.base import (
    Embedder,
    as_rows,
    embedders,
    folder_content,
    folder_or_name,
    refused,
)
from simgrad.models.networks.parts import OPEN_CLIP, quiet


@embedders.declare(
    "open-clip",
    paper="https://github.com/mlfoundations/open_clip",
    description="any model of open_clip, by the package open_clip_torch",
)
@dataclass(frozen=True)
class OpenClipEmbedder(Embedder):
    """By folder, by name on the hub, or by a name of open_clip's list with its weights."""

    source: str = setting("", "folder, hub name, or a name of open_clip's list such as RN50")
    weights: str | None = setting(None, "of a name of the list: a file, or open_clip's tag")

    @torch.no_grad()
    def texts(self, sentences: Sequence[str], device: torch.device) -> Tensor:
        model, _, words = _load(folder_or_name(self.source), self.weights, str(device))
        made = model.encode_text(words(list(sentences)).to(device))
        return as_rows(made, len(sentences), str(self))

    @torch.no_grad()
    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        model, cut, _ = _load(folder_or_name(self.source), self.weights, str(device))
        made = model.encode_image(torch.stack([cut(picture) for picture in pictures]).to(device))
        return as_rows(made, len(pictures), str(self))

    def content(self) -> str | None:
        file = Path(self.weights).expanduser() if self.weights else None
        if file is not None:
            return contents_hash([file]) if file.is_file() else None
        return folder_content(self.source)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        return (folder / OPEN_CLIP[0]).is_file()


@lru_cache(maxsize=2)
def _load(source: str, weights: str | None, device: str) -> tuple[Any, Any, Any]:
    """The model, what cuts its pictures, and its tokenizer."""
    try:
        import open_clip
    except ImportError as error:
        raise InputError(
            f"{source}: needs `pip install open_clip_torch`, with a torchvision that fits your "
            f"PyTorch ({error})."
        ) from None
    folder, listed = Path(source).expanduser(), source in open_clip.list_models()
    if listed != (weights is not None):
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(source)) or "none"
        raise InputError(
            f"open-clip(source={source}): of a name of open_clip's list, say which weights: "
            f"weights=FILE, or one of its tags: {tags}."
            if listed
            else f"open-clip(source={source}): is no name of open_clip's list, so it has weights "
            "of its own: leave weights= out."
        )
    name = source if listed else f"local-dir:{folder}" if folder.is_dir() else f"hf-hub:{source}"
    try:
        if not listed:
            _refuse_code(source, folder)
        with quiet():
            model, cut = open_clip.create_model_from_pretrained(name, weights, device=device)
            words = open_clip.get_tokenizer(name)
    except Exception as error:  # of the hub, of files, of packages that it needs
        raise refused(source, error) from None
    return model.eval(), cut, words


def _refuse_code(source: str, folder: Path) -> None:
    """open_clip hands on what a model's own settings say, to the tokenizers of transformers too."""
    file = folder / OPEN_CLIP[0]
    if not folder.is_dir():
        from huggingface_hub import hf_hub_download

        file = Path(hf_hub_download(source, OPEN_CLIP[0]))
    if _trusting(read_json(file)):
        raise ValueError("trust_remote_code")


def _trusting(told: Any) -> bool:
    if isinstance(told, dict):
        return bool(told.get("trust_remote_code")) or any(map(_trusting, told.values()))
    return isinstance(told, list) and any(map(_trusting, told))
