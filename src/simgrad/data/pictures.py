"""Pictures in files: opened one at a time, errors name the file."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simgrad.core.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
# Where the published archives put their pictures, beside the list of captions.
_FOLDERS = ("images", "Images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset")
_ORIENTATION = 0x0112  # EXIF tag
# A picture of more pixels than this fills memory when decoded; none in the field comes close.
MOST_PIXELS = 178_956_970


@dataclass(frozen=True)
class FilePictures:
    """One file per picture."""

    root: Path
    files: Sequence[str]  # relative to the root, or absolute

    def __len__(self) -> int:
        return len(self.files)

    def path(self, row: int) -> Path:
        """Its file; where there is none of that very name, the one that is meant, if one is."""
        path = self.root / self.files[row]
        if path.is_file():
            return path
        found = self._index.like(self.files[row])
        return found[0] if len(found) == 1 else path

    def picture(self, row: int) -> "Image":
        path = self.path(row)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {self._why(row, error)}.") from None
        return decode(data, str(path))

    def _why(self, row: int, error: OSError) -> str:
        if self.path(row).exists():
            return str(error)
        found = self._index.like(self.files[row])
        if len(found) > 1:
            return f"there is no such picture, but {found[0]} and {found[1]}: which is meant?"
        return "there is no such picture"

    @cached_property
    def _index(self) -> "Index":
        return Index(self.root)


class Index:
    """Pictures below a folder, found by a name that is only nearly right.

    People write `dog.jpg` for `dog.JPG`, `2018/dog.jpg`, or leave the ending out.
    """

    def __init__(self, root: Path) -> None:
        self._by_name: dict[str, list[Path]] = {}
        for folder, _, files in os.walk(root):
            for file in files:
                stem, dot, ending = file.lower().rpartition(".")
                if f".{ending}" in SUFFIXES and dot:
                    path = Path(folder, file)
                    self._by_name.setdefault(file.lower(), []).append(path)
                    self._by_name.setdefault(stem, []).append(path)

    def like(self, name: str) -> list[Path]:
        """The pictures that a name may mean: those that end as it does, or are called as it is."""
        parts = name.replace("\\", "/").lower().split("/")
        found = self._by_name.get(parts[-1], [])
        for keep in range(len(parts), 1, -1):
            ending = "/".join(parts[-keep:])
            nearer = [path for path in found if path.as_posix().lower().endswith(f"/{ending}")]
            if nearer:
                return sorted(nearer)
        return sorted(found)


def decode(data: bytes, where: str) -> "Image":
    """Bytes of a picture to RGB, upright; `where` is what an error calls it."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            return upright(picture)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    # Damaged files make decoders raise nearly anything: struct.error, SyntaxError, ...
    except Exception as error:
        reason = "is empty" if not data else f"cannot be decoded ({_reason(error)})"
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


def _reason(error: Exception) -> str:
    return "not a picture" if type(error).__name__ == "UnidentifiedImageError" else str(error)[:100]


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height from the head of a file; raises if it is no picture or ends too early."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as picture:
        # Not a decode, but it catches downloads that were cut off.
        if picture.format == "JPEG" and b"\xff\xd9" not in data[-4096:]:
            raise ValueError("the file ends too early")
        if picture.format == "PNG" and b"IEND" not in data[-64:]:
            raise ValueError("the file ends too early")
        return picture.size


def find_root(folder: Path, files: Sequence[str]) -> Path | None:
    """The folder that these files are relative to, judged by the first few; None if there is none.

    A folder called `images` counts even where the first pictures are missing from it.
    """
    probes = files[:20]
    within = [folder / name for name in _FOLDERS]
    roots = [*within, folder, *(folder.parent / name for name in _FOLDERS), folder.parent]
    found = [sum((root / probe).is_file() for probe in probes) for root in roots]
    if max(found, default=0) > 0:
        return roots[found.index(max(found))]
    for root in (*within, folder):  # names that are only nearly right
        if root.is_dir() and any(map(Index(root).like, probes)):
            return root
    return next((root for root in within if root.is_dir()), None)
