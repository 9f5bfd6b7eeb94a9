"""Two ONNX files of `simgrad export RUN --to FOLDER --format onnx`, run by onnxruntime."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.core.spec import setting
from simgrad.data.transforms import named
from simgrad.data.vocabulary import Tokenizer, tokenizer_from_json
from simgrad.models.embedders.base import Embedder, as_rows, embedders, folder_content
from simgrad.models.published.onnx import CAPTIONS, IMAGES, READING


@embedders.declare(
    "onnx",
    paper="https://onnxruntime.ai",
    description="image.onnx and captions.onnx, as simgrad export writes them",
)
@dataclass(frozen=True)
class OnnxEmbedder(Embedder):
    """By folder."""

    source: str = setting("", "folder with image.onnx, captions.onnx and reading.json")

    def texts(self, sentences: Sequence[str], device: torch.device) -> Tensor:
        told = _reading(self.source)
        if told.get("captions") == "vectors":
            raise InputError(f"{self.source}: reads vectors of captions, not sentences.")
        words: Tokenizer = tokenizer_from_json(told["tokenizer"])
        ids = [words.cut(told["longest"]).encode(sentence) for sentence in sentences]
        tokens = np.zeros((len(ids), max(map(len, ids))), dtype=np.int64)
        for row, one in enumerate(ids):
            tokens[row, : len(one)] = one
        lengths = np.array([len(one) for one in ids], dtype=np.int64)
        session = _session(self.source, CAPTIONS)
        made = session.run(None, {"tokens": tokens, "lengths": lengths})[0]
        return as_rows(made, len(ids), str(self))

    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        told = _reading(self.source)
        if told["images"] != "pixels":
            raise InputError(f"{self.source}: reads {told['images']} of pictures, not pictures.")
        cut = named(told["cut"], train=False, size=told["shape"][-1])
        pixels = torch.stack([cut(picture, None) for picture in pictures]).numpy()
        made = _session(self.source, IMAGES).run(None, {"images": pixels})[0]
        return as_rows(made, len(pictures), str(self))

    def content(self) -> str | None:
        return folder_content(self.source)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        return all((folder / name).is_file() for name in (IMAGES, CAPTIONS, READING))


def _reading(source: str) -> dict[str, Any]:
    told: dict[str, Any] = read_json(Path(source).expanduser() / READING)
    return told


@lru_cache(maxsize=4)
def _session(source: str, file: str) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise InputError(f"{source}: needs `pip install onnxruntime`.") from None
    path = Path(source).expanduser() / file
    try:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common class
        raise InputError(f"{path}: cannot be run ({str(error)[:160]}).") from None
