"""A Python function, or a file with the functions `texts` and `images`: a list in, rows out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from runpy import run_path
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.models.embedders.base import Embedder, as_rows, embedders
from simgrad.models.embedders.sentence_transformer import encoded


@embedders.declare(
    "python",
    paper="",
    description="functions texts(sentences) and images(pictures) of a Python file",
)
@dataclass(frozen=True)
class PythonEmbedder(Embedder):
    """By file; it is run, since you name it."""

    file: str = setting("", "a .py file with texts(sentences) and images(pictures), or one of them")

    def texts(self, sentences: Sequence[str], device: torch.device) -> Tensor:
        return as_rows(self._function("texts")(list(sentences)), len(sentences), str(self))

    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        return as_rows(self._function("images")(list(pictures)), len(pictures), str(self))

    def _function(self, name: str) -> Callable[[list[Any]], Any]:
        found = _run(self.file).get(name)
        if not callable(found):
            raise InputError(f"{self.file}: has no function {name}(items).")
        return found  # type: ignore[no-any-return]


class FunctionEmbedder(Embedder):
    """A function that takes a list of sentences or of pictures; or a SentenceTransformer."""

    name = "function"

    def __init__(self, function: Any) -> None:
        self._function = function

    def __str__(self) -> str:
        return getattr(self._function, "__name__", type(self._function).__name__)

    def texts(self, sentences: Sequence[str], device: torch.device) -> Tensor:
        return self._rows(list(sentences))

    def images(self, pictures: Sequence[Any], device: torch.device) -> Tensor:
        return self._rows(list(pictures))

    def _rows(self, items: list[Any]) -> Tensor:
        if type(self._function).__module__.startswith("sentence_transformers"):
            return encoded(self._function, items, str(self))
        return as_rows(self._function(items), len(items), f"{self}()")


@lru_cache(maxsize=4)
def _run(file: str) -> dict[str, Any]:
    path = Path(file).expanduser()
    if not path.is_file():
        raise InputError(f"python(file={file}): there is no such file.")
    return run_path(str(path))
