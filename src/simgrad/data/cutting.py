"""Pictures opened and cut for evaluation, on Pillow alone: who only reads them needs no more."""

import math
from collections.abc import Callable

from PIL import Image

from simgrad.core.errors import InputError
from simgrad.data.pictures import MOST_PIXELS, open_image, reason_of, refuse_bombs, upright


def open_picture(source: object, where: str, least: int | None = None) -> Image.Image:
    """Decode a file (a path or a binary stream) to an upright RGB picture.

    `least`: a JPEG may be decoded at a half, a quarter or an eighth of its size, as long as its
    short side keeps this many pixels; that is several times quicker for large photos.
    """
    try:
        with open_image(source) as picture:
            refuse_bombs(picture)
            if least is not None and picture.format == "JPEG":
                picture.draft("RGB", _draft_size(picture.size, least))
            picture.load()  # while the file is open
            return upright(picture)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except Image.DecompressionBombError:
        raise InputError(f"{where}: more pixels than are decoded ({MOST_PIXELS:,}).") from None
    except FileNotFoundError:
        raise InputError(f"{where}: there is no such picture.") from None
    # Damaged files make decoders raise nearly anything: struct.error, SyntaxError, OSError, ...
    except Exception as error:
        raise InputError(f"{where}: the picture cannot be decoded ({reason_of(error)}).") from None


def _draft_size(size: tuple[int, int], least: int) -> tuple[int, int]:
    scale = least / min(size)
    return max(1, math.ceil(size[0] * scale)), max(1, math.ceil(size[1] * scale))


# -- cuts


def squeeze(picture: Image.Image, size: int) -> Image.Image:
    return resize(picture, (size, size))


def centre_crop(
    picture: Image.Image,
    size: int,
    short: int,
    smooth: Image.Resampling = Image.Resampling.BICUBIC,
) -> Image.Image:
    """Scale the short side to `short`, then cut a square of `size` from the middle.

    The long side is cut off to whole pixels, not rounded, as torchvision and transformers do it.
    """
    width, height = picture.size
    w, h = (max(size, short * side // min(width, height)) for side in (width, height))
    left, top = round((w - size) / 2), round((h - size) / 2)
    # Only what the crop shows is computed: the crop's box in the picture's own pixels.
    x, y = width / w, height / h
    box = (left * x, top * y, (left + size) * x, (top + size) * y)
    return resize(picture, (size, size), box, smooth)


def resize(
    picture: Image.Image,
    size: tuple[int, int],
    box: tuple[float, float, float, float] | None = None,
    smooth: Image.Resampling = Image.Resampling.BICUBIC,
) -> Image.Image:
    return picture.resize(size, smooth, box=box)


def _vsepp(picture: Image.Image, size: int) -> Image.Image:
    return centre_crop(picture, size, size * 8 // 7, Image.Resampling.BILINEAR)


def _efficientnet(picture: Image.Image, size: int) -> Image.Image:
    return centre_crop(picture, size, size + 32)


def _clip(picture: Image.Image, size: int) -> Image.Image:
    return centre_crop(picture, size, size)


# What each model was published with: style -> the cut of a picture, by size.
EVALUATION: dict[str, Callable[[Image.Image, int], Image.Image]] = {
    "vse++": _vsepp,
    "efficientnet-lite": _efficientnet,
    "vse-infinity": squeeze,
    "x-vlm": squeeze,
    "clip": _clip,
    "plain": squeeze,
}


# -- as the processor of a pretrained network says

MOST_A_SIDE = 4096
FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def cut_of(style: str) -> Callable[[Image.Image, int], Image.Image]:
    """A style's cut: one of the names above, or what a processor says, in one word:
    `crop:SHORT:FILTER`, `centre:SHORT:FILTER`, `squeeze:FILTER`, `patches:PIXELS:MOST:FILTER`."""
    if style in EVALUATION:
        return EVALUATION[style]
    kind, *numbers, smooth = style.split(":") if ":" in style else (style, "")
    if smooth in FILTERS.values() and all(map(_is_a_size, numbers)):
        how = Image.Resampling[smooth.upper()]
        sizes = [int(number) for number in numbers]
        if kind == "crop" and len(sizes) == 1:
            return lambda picture, size: exact_crop(picture, size, sizes[0], how)
        if kind == "centre" and len(sizes) == 1:
            return lambda picture, size: exact_crop(picture, size, sizes[0], how, rounded=True)
        if kind == "squeeze" and not sizes:
            return lambda picture, size: resize(picture, (size, size), None, how)
        if kind == "patches" and len(sizes) == 2 and sizes[0] ** 2 * sizes[1] <= MOST_A_SIDE**2:
            return lambda picture, size: patches(picture, size, sizes[0], sizes[1], how)
    raise InputError(f"there is no transform '{style[:80]}' (there are: {', '.join(EVALUATION)}).")


def _is_a_size(text: str) -> bool:
    """A model's own file names it: pictures of a billion pixels a side are not made for it."""
    return text.isascii() and text.isdigit() and 0 < int(text[:10]) <= MOST_A_SIDE


def exact_crop(
    picture: Image.Image, size: int, short: int, smooth: Image.Resampling, rounded: bool = False
) -> Image.Image:
    """As transformers does it, to the last bit: `centre_crop` rounds some pixels otherwise.

    `rounded`: the middle as torchvision and open_clip find it. A strip, which scaled as a whole
    would fill memory (one pixel wide and thousands long), is cut first.
    """
    width, height = picture.size
    w, h = (short * side // min(width, height) for side in (width, height))
    if w * h > MOST_PIXELS:
        return centre_crop(picture, size, short, smooth)
    left, top = (w - size) // 2, (h - size) // 2
    if rounded:
        left, top = round((w - size) / 2), round((h - size) / 2)
    return resize(picture, (w, h), None, smooth).crop((left, top, left + size, top + size))


def patches(
    picture: Image.Image, size: int, side: int, most: int, smooth: Image.Resampling
) -> Image.Image:
    """SigLIP 2's NaFlex: the whole picture, hardly bent, as at most N patches.

    They stand one after another in a square of `size` pixels, row by row, so that pictures of any
    shape lie in arrays of one shape. The last pixel tells how many rows and columns there are.
    """
    rows, columns = _grid(picture.height, picture.width, side, most)
    scaled = resize(picture, (columns * side, rows * side), None, smooth)
    sheet = Image.new("RGB", (size, size))
    across = max(1, size // side)
    for k in range(rows * columns):
        left, top = side * (k % columns), side * (k // columns)
        one = scaled.crop((left, top, left + side, top + side))
        sheet.paste(one, (side * (k % across), side * (k // across)))
    sheet.putpixel((size - 1, size - 1), (rows, columns, 0))
    return sheet


def _grid(height: int, width: int, side: int, most: int) -> tuple[int, int]:
    """Rows and columns of patches: as large as fits, found by halving as transformers does."""

    def count(scale: float, length: int) -> int:
        return max(1, math.ceil(length * scale / side))

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        scale = (low + high) / 2
        fits = count(scale, height) * count(scale, width) <= most
        low, high = (scale, high) if fits else (low, scale)
    return count(low, height), count(low, width)
