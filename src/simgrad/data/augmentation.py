"""RandAugment: a few random changes of one strength, drawn from a fixed list.

Cubuk et al., RandAugment, NeurIPS 2020; the ten changes and their ranges are those that X-VLM is
fine-tuned with (two changes of strength 7 of 10).
"""

from collections.abc import Callable

import torch
from PIL import Image, ImageEnhance, ImageOps

_STRONGEST = 10
_SHIFT = 10  # pixels, at full strength
_GREY = (128, 128, 128)  # what comes in where a picture was moved away


def augment(
    picture: Image.Image, generator: torch.Generator, *, steps: int, strength: int
) -> Image.Image:
    """Apply `steps` changes, drawn with replacement; those that have a direction take either."""
    level = strength / _STRONGEST
    for _ in range(steps):
        chosen = int(torch.randint(len(_CHANGES), (), generator=generator))
        sign = 1.0 if float(torch.rand((), generator=generator)) < 0.5 else -1.0
        picture = _CHANGES[chosen](picture, level, sign)
    return picture


def _move(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return picture.transform(
        picture.size,
        Image.Transform.AFFINE,
        matrix,
        resample=Image.Resampling.BILINEAR,
        fillcolor=_GREY,
    )


def _identity(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return picture


def _contrast_stretch(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return ImageOps.autocontrast(picture)


def _equalise(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return ImageOps.equalize(picture)


def _rotate(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return picture.rotate(sign * 30 * level, resample=Image.Resampling.BILINEAR, fillcolor=_GREY)


def _enhance(kind: type) -> Callable[[Image.Image, float, float], Image.Image]:
    def change(picture: Image.Image, level: float, sign: float) -> Image.Image:
        out: Image.Image = kind(picture).enhance(0.1 + 1.8 * level)
        return out

    return change


def _shear_x(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return _move(picture, (1, sign * 0.3 * level, 0, 0, 1, 0))


def _shear_y(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return _move(picture, (1, 0, 0, sign * 0.3 * level, 1, 0))


def _shift_x(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return _move(picture, (1, 0, sign * level * _SHIFT, 0, 1, 0))


def _shift_y(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return _move(picture, (1, 0, 0, 0, 1, sign * level * _SHIFT))


_CHANGES: tuple[Callable[[Image.Image, float, float], Image.Image], ...] = (
    _identity,
    _contrast_stretch,
    _equalise,
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Sharpness),
    _shear_x,
    _shear_y,
    _shift_x,
    _shift_y,
    _rotate,
)
