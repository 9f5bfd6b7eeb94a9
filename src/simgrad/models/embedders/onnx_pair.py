"""Two ONNX files of `simgrad export RUN --to FOLDER --format onnx`, run by onnxruntime."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.core.spec import setting
from simgrad.core.typed import Typed, checked
from simgrad.data.transforms import named
from simgrad.data.vocabulary import Tokenizer, tokenizer_from_json
from simgrad.models.embedders.base import (
    Embedder,
    as_rows,
    embedders,
    folder_content,
    folder_or_name,
)
from simgrad.models.published.onnx import CAPTIONS, IMAGES, READING


class PairSettings(Typed):
    """What reading.json says; it may be a stranger's."""

    images: str  # "pixels", or the kind of features
    shape: list[int] = Field(min_length=1)
    cut: str | None
    longest: int | None = Field(ge=1)
    captions: Literal["tokens", "vectors"] = "tokens"
    tokenizer: dict[str, Any]


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
        told = _reading(folder_or_name(self.source))
        if told.captions == "vectors":
            raise InputError(f"{self.source}: reads vectors of captions, not sentences.")
        with _from(self.source):
            words: Tokenizer = tokenizer_from_json(told.tokenizer)
        ids = [words.cut(told.longest).encode(sentence) for sentence in sentences]
        tokens = np.zeros((len(ids), max(map(len, ids))), dtype=np.int64)
        for row, one in enumerate(ids):
            tokens[row, : len(one)] = one
        lengths = np.array([len(one) for one in ids], dtype=np.int64)
        made = _run(self.source, CAPTIONS, {"tokens": tokens, "lengths": lengths})
        return as_rows(made, len(ids), str(self))

    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        told = _reading(folder_or_name(self.source))
        if told.images != "pixels" or told.cut is None:
            raise InputError(f"{self.source}: reads {told.images:.40} of pictures, not pictures.")
        with _from(self.source):
            cut = named(told.cut, train=False, size=told.shape[-1])
        pixels = torch.stack([cut(picture, None) for picture in pictures]).numpy()
        made = _run(self.source, IMAGES, {"images": pixels})
        return as_rows(made, len(pictures), str(self))

    def content(self) -> str | None:
        return folder_content(self.source)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        return all((folder / name).is_file() for name in (IMAGES, CAPTIONS, READING))


@contextmanager
def _from(source: str) -> Iterator[None]:
    """What is wrong with a part is told with the file that holds it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{Path(source) / READING}: {error}") from None


def _reading(source: str) -> PairSettings:
    path = Path(source).expanduser() / READING
    told = read_json(path)
    if not isinstance(told, dict):
        raise InputError(f"{path}: no object, but {type(told).__name__}. Export the run again.")
    return checked(PairSettings, told, str(path))


def _run(source: str, file: str, given: dict[str, Any]) -> Any:
    session = _session(source, file)
    try:
        return session.run(None, given)[0]
    except Exception as error:  # its errors have no common class
        raise _unusable(source, file, error) from None


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
        raise _unusable(source, file, error) from None


def _unusable(source: str, file: str, error: Exception) -> InputError:
    return InputError(f"{Path(source) / file}: cannot be run ({str(error)[:160]}).")
