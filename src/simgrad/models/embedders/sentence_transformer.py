"""A SentenceTransformer, of texts alone or of pictures and texts: its own encode.

Versions before 6 run classes that a folder's modules.json names, from files that lie beside it,
also with trust_remote_code=False; so those load nothing here.
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

_SAFE = 6  # the first version that asks for trust_remote_code in folders, too


@embedders.declare(
    "sentence-transformers",
    paper="Reimers & Gurevych, EMNLP 2019",
    description="a SentenceTransformer, of texts or of pictures and texts",
)
@dataclass(frozen=True)
class SentenceTransformerEmbedder(Embedder):
    """By folder or name."""

    source: str = setting("", "folder or hub name")

    def texts(self, sentences: Sequence[str], device: torch.device) -> Tensor:
        return encoded(_load(folder_or_name(self.source), str(device)), list(sentences), str(self))

    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        return encoded(_load(folder_or_name(self.source), str(device)), list(pictures), str(self))

    def content(self) -> str | None:
        return folder_content(self.source)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        return (folder / "modules.json").is_file()


def encoded(model: Any, items: list[Any], what: str) -> Tensor:
    """By `encode` of the library."""
    try:
        made = model.encode(items, convert_to_numpy=True, show_progress_bar=False)
    except Exception as error:  # a text model that is given pictures fails in any of its layers
        if items and not isinstance(items[0], str):
            raise InputError(
                f"'{what}' reads no pictures, it seems ({str(error)[:100]})."
            ) from None
        raise
    return as_rows(made, len(items), what)


@lru_cache(maxsize=2)
def _load(source: str, device: str) -> Any:
    try:
        import sentence_transformers
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise InputError(f"{source}: needs `pip install 'sentence-transformers>=6'`.") from None
    version = str(sentence_transformers.__version__)
    if int(version.split(".")[0]) < _SAFE:
        raise InputError(
            f"{source}: sentence-transformers {version} would run code that lies in a model's "
            f"folder. `pip install 'sentence-transformers>={_SAFE}'`; or, if you trust the model, "
            "load it in Python and pass it to simgrad.open."
        )
    try:
        with quiet():
            return SentenceTransformer(source, device=device, trust_remote_code=False)
    except Exception as error:  # of the hub, of files, of modules that are not there
        raise refused(source, error) from None
