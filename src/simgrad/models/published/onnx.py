"""Any dual encoder as two ONNX files: pictures or features to vectors, tokens to vectors.

image.onnx:    images (n, ...) as the model reads them (pictures: bytes)  ->  vectors (n, d)
captions.onnx: tokens (m, length), lengths (m)                            ->  vectors (m, d)
               captions (m, c), where the model reads vectors that a text network made
Both are of unit length, so a similarity is a product. reading.json says how pictures are cut and
holds the tokenizer.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.data.vocabulary import Tokenizer
from simgrad.models.inputs import vectors_of

IMAGES, CAPTIONS, READING = "image.onnx", "captions.onnx", "reading.json"
_OPSET = 18


class _Images(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return vectors_of(self.model.encode_images(images))


class _CaptionVectors(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, captions: Tensor) -> Tensor:
        return vectors_of(self.model.encode_captions(captions, captions[:, 0]))


class _Captions(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return vectors_of(self.model.encode_captions(tokens, lengths))


def write_onnx(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Both halves of a model that embeds, and what they read."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("the format onnx needs `pip install 'simgrad[onnx]'`.") from None
    model = model.eval().requires_grad_(False)
    kind, shape = model.inputs.images, model.inputs.image_shape
    images = torch.zeros(2, *shape, dtype=torch.uint8 if kind == "pixels" else torch.float32)
    n = torch.export.Dim("n", min=1)
    _write(_Images(model), (images,), ["images"], {"images": {0: n}}, folder / IMAGES)
    _write_captions(model, folder / CAPTIONS)
    write_json(
        folder / READING,
        {
            "images": kind,
            "shape": list(shape),
            "cut": model.transform if kind == "pixels" else None,
            "longest": model.longest,
            "captions": "vectors" if model.reads_vectors else "tokens",
            "tokenizer": tokenizer.to_json(),
        },
    )


def _write_captions(model: Any, path: Path) -> None:
    m = torch.export.Dim("m", min=2)  # of the tracing: torch 2.9 makes no formula of 1 and more
    if model.reads_vectors:
        vectors = torch.zeros(2, model.inputs.caption_dimension)
        _write(_CaptionVectors(model), (vectors,), ["captions"], {"captions": {0: m}}, path)
        return
    longest = model.longest or 32
    tokens, lengths = torch.ones(2, min(longest, 12), dtype=torch.long), torch.tensor([12, 7])
    lengths = lengths.clamp(max=tokens.shape[1])
    length = torch.export.Dim("length", min=2, max=longest if model.longest else 512)
    free = {"tokens": {0: m, 1: length}, "lengths": {0: m}}
    _write(_Captions(model), (tokens, lengths), ["tokens", "lengths"], free, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of packages that no model here needs, and of its own code."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _write(half: Any, example: tuple[Tensor, ...], names: list[str], free: Any, path: Path) -> None:
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            half.eval(),
            example,
            input_names=names,
            output_names=["vectors"],
            dynamic_shapes=free,
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    for value in program.model.graph.inputs:
        if value.shape is not None and isinstance(value.shape[0], int):
            raise InputError(
                f"model '{half.model.config}' cannot be written as ONNX: its graph would take "
                f"{value.shape[0]} items at a time, no more and no fewer."
            )
    program.save(path)
