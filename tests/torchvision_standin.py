"""open_clip without torchvision, which no CPU build of PyTorch here goes with.

open_clip and timm import it for the cut of pictures and for names that tests do not use. The cut is
written out here, as torchvision's documentation states it; all other names are empty classes.
"""

import contextlib
import enum
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

_NAMES = ("", ".ops", ".ops.misc", ".transforms", ".transforms.functional", ".datasets", ".models",
          ".models.feature_extraction", ".utils")  # fmt: skip
_PACKAGES = ("torchvision", "open_clip", "timm")


class _Mode(enum.Enum):
    NEAREST, BILINEAR, BICUBIC, BOX, HAMMING, LANCZOS = (
        Image.Resampling[name]
        for name in ("NEAREST", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")
    )


class _Empty(types.ModuleType):
    """Any name of it is a class without anything."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {}))
        return getattr(self, name)


def _resize(size: Any, interpolation: _Mode) -> Callable[[Image.Image], Image.Image]:
    """A number is the short side's; the long side is cut off to whole pixels."""

    def cut(picture: Image.Image) -> Image.Image:
        short = min(picture.size)
        wanted = (
            [int(size * side / short) for side in picture.size]
            if isinstance(size, int)
            else [size[1], size[0]]
        )
        return picture.resize((wanted[0], wanted[1]), interpolation.value)

    return cut


def _centre(size: Any) -> Callable[[Image.Image], Image.Image]:
    def cut(picture: Image.Image) -> Image.Image:
        height, width = (size, size) if isinstance(size, int) else size
        left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
        return picture.crop((left, top, left + width, top + height))

    return cut


def _to_tensor(picture: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


class _Normalize:
    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = (torch.tensor(x).view(3, 1, 1) for x in (mean, std))

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels - self.mean) / self.std


def _compose(steps: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def cut(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return cut


@contextlib.contextmanager
def open_clip_here() -> Iterator[Any]:
    """The package, over the real torchvision if that can be imported; else the test is skipped."""
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip_torch is not installed")
    if importlib.util.find_spec("torchvision") is not None:
        yield pytest.importorskip("open_clip")
        return
    from transformers.utils import is_torchvision_available

    is_torchvision_available()  # which keeps its answer: there is none
    before = {name for name in sys.modules if name.partition(".")[0] in _PACKAGES}
    for name in _NAMES:
        made: Any = _Empty(f"torchvision{name}")
        made.__spec__, made.__path__ = ModuleSpec(made.__name__, None), []
        sys.modules[made.__name__] = made
        parent, _, own = made.__name__.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, made)
    made = sys.modules["torchvision.transforms"]
    made.Resize, made.CenterCrop, made.Compose = _resize, _centre, _compose
    made.Normalize, made.InterpolationMode, made.ToTensor = _Normalize, _Mode, type("_", (), {})
    made.functional.InterpolationMode, made.functional.to_tensor = _Mode, _to_tensor
    sys.modules["torchvision.ops.misc"].FrozenBatchNorm2d = type("Frozen", (torch.nn.Module,), {})  # type: ignore[attr-defined]
    try:
        import open_clip

        yield open_clip
    finally:
        for name in {n for n in sys.modules if n.partition(".")[0] in _PACKAGES} - before:
            del sys.modules[name]
