"""Pictures to tensors: augmentation and cropping as published, on Pillow and torch alone.

`named("vse++", train=True, size=224)` gives a function of a picture and a torch.Generator to bytes
(3, size, size); the same generator state gives the same tensor. Networks here standardise
bytes themselves; `named("vse++/imagenet", ...)` does it in the transform, for other networks.

| name              | training                                            | evaluation            |
|-------------------|-----------------------------------------------------|-----------------------|
| vse++             | 8-100 % of the area, ratio 3/4-4/3, flip            | short side, crop 7/8  |
| efficientnet-lite | the same, by bicubic interpolation                  | short side, crop - 32 |
| vse-infinity      | 60-100 % of each side, flip                         | the whole, squeezed   |
| x-vlm             | 50-100 % of the area, flip, RandAugment(2, 7)       | the whole, squeezed   |
| clip              | 90-100 % of the area                                | short side, crop      |
| plain             | the whole, squeezed                                 | the whole, squeezed   |

RandAugment is a few random changes of one strength, drawn from a fixed list (Cubuk et al., NeurIPS
2020); the ten changes and their ranges are those that X-VLM is fine-tuned with.

What the processor of a pretrained network says is written in one word (`cutting.cut_of`), for
evaluation alone: `crop:224:bicubic`.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.cutting import cut_of, resize, squeeze
from simgrad.data.pictures import upright

Transform = Callable[[Image.Image, torch.Generator | None], Tensor]

# name -> mean and standard deviation of red, green and blue, of numbers from 0 to 1
NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    # (byte - 127) / 128
    "efficientnet-lite": ((127 / 255,) * 3, (128 / 255,) * 3),
}


def named(name: str, train: bool, size: int) -> Transform:
    """The transform of a name, `name` or `name/normalisation`."""
    recipe, slash, normalisation = name.partition("/")
    if train and recipe not in _TRAINING:
        raise InputError(f"there is no transform '{recipe}' (there are: {', '.join(_TRAINING)}).")
    cut = cut_of(recipe)
    if slash and normalisation not in NORMALISATIONS:
        has = ", ".join(NORMALISATIONS)
        raise InputError(f"there is no normalisation '{normalisation}' (there are: {has}).")
    if not 1 <= size <= 4096:
        raise InputError(f"transform '{name}': size is 1 to 4096 pixels, not {size}.")

    def transform(picture: Image.Image, generator: torch.Generator | None = None) -> Tensor:
        picture = upright(picture)
        if train and generator is not None:
            picture = _TRAINING[recipe](picture, size, generator)
        else:
            picture = cut(picture, size)
        pixels = torch.from_numpy(np.ascontiguousarray(np.array(picture).transpose(2, 0, 1)))
        return normalise(pixels, normalisation) if slash else pixels

    return transform


def normalise(pixels: Tensor, name: str) -> Tensor:
    """Bytes, or numbers from 0 to 1, to the mean and spread that a network was trained on."""
    mean, std = NORMALISATIONS[name]
    values = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels
    shape = (3, 1, 1)
    return (values - values.new_tensor(mean).view(shape)) / values.new_tensor(std).view(shape)


# -- random numbers, all from the one generator


def _uniform(generator: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


def _whole(generator: torch.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


# -- steps


def _flip(picture: Image.Image, generator: torch.Generator) -> Image.Image:
    if _uniform(generator, 0, 1) < 0.5:
        return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return picture


def _area_crop(
    picture: Image.Image,
    size: int,
    generator: torch.Generator,
    scale: tuple[float, float],
    smooth: Image.Resampling = Image.Resampling.BICUBIC,
) -> Image.Image:
    """A crop of random area and shape, made square (Inception's augmentation)."""
    width, height = picture.size
    for _ in range(10):
        area = width * height * _uniform(generator, *scale)
        ratio = math.exp(_uniform(generator, math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = _whole(generator, 0, width - w), _whole(generator, 0, height - h)
            break
    else:  # a very long picture: the largest crop of a permitted shape, from the middle
        w = min(width, max(1, round(height * 4 / 3)))
        h = min(height, max(1, round(width * 4 / 3)))
        left, top = (width - w) // 2, (height - h) // 2
    return resize(picture, (size, size), (left, top, left + w, top + h), smooth)


def _side_crop(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    """A crop that keeps the same share, 60 to 100 %, of both sides."""
    share = _uniform(generator, 0.6, 1.0)
    w, h = (max(1, int(share * side)) for side in picture.size)
    left = _whole(generator, 0, picture.width - w)
    top = _whole(generator, 0, picture.height - h)
    return resize(picture, (size, size), (left, top, left + w, top + h))


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


def _move(picture: Image.Image, *matrix: float) -> Image.Image:
    affine, smooth = Image.Transform.AFFINE, Image.Resampling.BILINEAR
    return picture.transform(picture.size, affine, matrix, resample=smooth, fillcolor=_GREY)


def _rotate(picture: Image.Image, level: float, sign: float) -> Image.Image:
    return picture.rotate(sign * 30 * level, resample=Image.Resampling.BILINEAR, fillcolor=_GREY)


def _enhance(kind: type, picture: Image.Image, level: float) -> Image.Image:
    out: Image.Image = kind(picture).enhance(0.1 + 1.8 * level)
    return out


# Of a picture, the strength and the direction.
_CHANGES: tuple[Callable[[Image.Image, float, float], Image.Image], ...] = (
    lambda picture, level, sign: picture,
    lambda picture, level, sign: ImageOps.autocontrast(picture),
    lambda picture, level, sign: ImageOps.equalize(picture),
    lambda picture, level, sign: _enhance(ImageEnhance.Brightness, picture, level),
    lambda picture, level, sign: _enhance(ImageEnhance.Sharpness, picture, level),
    lambda picture, level, sign: _move(picture, 1, sign * 0.3 * level, 0, 0, 1, 0),
    lambda picture, level, sign: _move(picture, 1, 0, 0, sign * 0.3 * level, 1, 0),
    lambda picture, level, sign: _move(picture, 1, 0, sign * level * _SHIFT, 0, 1, 0),
    lambda picture, level, sign: _move(picture, 1, 0, 0, 0, 1, sign * level * _SHIFT),
    _rotate,
)


# -- what each model was published with


def _vsepp(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    cropped = _area_crop(picture, size, generator, (0.08, 1.0), Image.Resampling.BILINEAR)
    return _flip(cropped, generator)


def _efficientnet(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    return _flip(_area_crop(picture, size, generator, (0.08, 1.0)), generator)


def _vse_infinity(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    return _flip(_side_crop(picture, size, generator), generator)


def _xvlm(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    picture = _flip(_area_crop(picture, size, generator, (0.5, 1.0)), generator)
    return augment(picture, generator, steps=2, strength=7)


def _clip(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    return _area_crop(picture, size, generator, (0.9, 1.0))


def _plain(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    return squeeze(picture, size)


_TRAINING: dict[str, Callable[[Image.Image, int, torch.Generator], Image.Image]] = {
    "vse++": _vsepp,
    "efficientnet-lite": _efficientnet,
    "vse-infinity": _vse_infinity,
    "x-vlm": _xvlm,
    "clip": _clip,
    "plain": _plain,
}
