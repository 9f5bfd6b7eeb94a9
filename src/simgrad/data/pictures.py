"""Pictures: bytes to RGB, upright, bounded in size; on Pillow alone, as `reading.py` needs it.

Formats are named: Pillow knows some forty, and hands one of them (EPS) to another program.
"""

import io
from typing import TYPE_CHECKING, Any

from simgrad.core.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
_ORIENTATION = 0x0112  # EXIF tag
# A picture of more pixels than this fills memory when decoded; none in the field comes close.
MOST_PIXELS = 178_956_970


def open_image(source: Any) -> "Image":
    """A file (a path or a binary stream) by its head; what it is called does not count."""
    from PIL import Image

    return Image.open(source, formats=FORMATS)


def decode(data: bytes, where: str) -> "Image":
    """Bytes of a picture to RGB, upright; `where` is what an error calls it."""
    try:
        with open_image(io.BytesIO(data)) as picture:
            return upright(picture)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    # Damaged files make decoders raise nearly anything: struct.error, SyntaxError, ...
    except Exception as error:
        reason = "is empty" if not data else f"cannot be decoded ({reason_of(error)})"
        raise InputError(f"{where}: the picture {reason}.") from None


def upright(picture: "Image") -> "Image":
    """RGB, turned the way the camera was held; the first frame of what moves; on white."""
    from PIL import Image, ImageOps

    refuse_bombs(picture)
    picture.load()
    if picture.getexif().get(_ORIENTATION, 1) != 1:
        picture = ImageOps.exif_transpose(picture)
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if picture.mode.startswith(("I", "F")):  # 16-bit greyscale: convert() would clip, not scale
        import numpy as np  # here: who reads pictures that need none does not wait for it

        values = np.asarray(picture, dtype=np.float64)
        if not np.isfinite(values).all():
            raise InputError("a picture of which some pixels are NaN or infinite.")
        high = 65535.0 if values.max(initial=0) > 255 else 255.0
        picture = Image.fromarray((values * (255.0 / high)).clip(0, 255).astype(np.uint8))
    if picture.mode in {"RGBA", "LA", "PA"} or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        picture = Image.new("RGBA", layer.size, "white")
        picture.alpha_composite(layer)
    return picture.convert("RGB")


def refuse_bombs(picture: "Image") -> None:
    """Before it is decoded: the size that its head tells."""
    width, height = picture.size
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        raise InputError(
            f"a picture of {width} x {height} pixels: at most {MOST_PIXELS:,} pixels are decoded."
        )


def reason_of(error: Exception) -> str:
    """Why a picture cannot be decoded."""
    if type(error).__name__ == "UnidentifiedImageError":
        return f"not a picture in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    if str(error).startswith("image file is truncated"):
        return "the file ends too early"
    return str(error)[:100]


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height from the head of a file; raises if it is no picture or ends too early."""
    with open_image(io.BytesIO(data)) as picture:
        # Not a decode, but it catches downloads that were cut off.
        if picture.format == "JPEG" and b"\xff\xd9" not in data[-4096:]:
            raise ValueError("the file ends too early")
        if picture.format == "PNG" and b"IEND" not in data[-64:]:
            raise ValueError("the file ends too early")
        return picture.size
