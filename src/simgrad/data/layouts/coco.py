"""COCO's own annotations: captions_train2014.json, captions_val2014.json and its image folders.

{"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}. The files lie in
annotations/ or beside the folders train2014/ and val2014/.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import Growth
from simgrad.data.layouts.separated import split_of
from simgrad.data.log import Log


@declare(
    "coco",
    paper="Chen et al., arXiv:1504.00325",
    description="annotations/captions_*.json + train2014/, val2014/ of COCO",
)
@dataclass(frozen=True)
class COCO(Layout):
    """Images and captions in two lists, joined by the image's id."""

    def parts(self, path: Path) -> dict[str, bool]:
        found = [path] if path.is_file() else [*path.glob("*.json"), *path.glob("annotations/*")]
        return {
            "annotations/captions_*.json": any(file.suffix == ".json" for file in found),
            "in it 'images' with 'file_name', and 'annotations' with 'caption'": bool(_files(path)),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        files = _files(path) or ([path] if path.is_file() else [])
        if not files:
            raise InputError(f"{path}: no captions_*.json there, nor in annotations/.")
        folder = path if path.is_dir() else path.parent
        if folder.name == "annotations":
            folder = folder.parent
        growth = Growth(folder.resolve().name, files=files, pattern="annotations[{}]")
        for number, file in enumerate(files):
            split = split_of(file)
            if split in growth.splits:
                raise InputError(f"{file}: a second file for the split '{split}'; name one file.")
            _read_file(number, split, _pictures(folder, file), growth, log)
        return growth.finish(folder, published)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".json" and _looks_right(path) else []
    for folder in (path / "annotations", path):
        named = sorted(folder.glob("captions_*.json")) or sorted(folder.glob("*.json"))
        found = [file for file in named if _looks_right(file)]
        if found:
            return found
    return []


def _looks_right(file: Path) -> bool:
    """Judge by the head and the end of the file: the whole takes seconds to parse."""
    if not file.is_file():  # a pipe is not asked what it holds
        return False
    with open(file, "rb") as opened:
        head = opened.read(1 << 16)
        opened.seek(max(0, file.stat().st_size - (1 << 16)))
        both = head + opened.read()
    if b'"sentences"' in both or not head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{"):
        return False
    return b'"file_name"' in both and (b'"caption"' in both or file.name.startswith("captions_"))


def _pictures(folder: Path, file: Path) -> str:
    """The folder that a file's pictures are in, as names are written: "train2014/", or ""."""
    year = file.stem.removeprefix("captions_")
    for place in (folder / "images", folder):
        if (place / year).is_dir():
            return f"{year}/"
    return ""


def _read_file(number: int, split: str | None, within: str, growth: Growth, log: Log) -> None:
    file = growth.files[number]
    value = read_json(file)
    lists = [value.get(key) if isinstance(value, dict) else None for key in _LISTS]
    if not all(isinstance(one, list) for one in lists):
        raise InputError(f"{file}: needs the lists 'images' and 'annotations' at the top.")
    images, annotations = lists
    names: dict[Any, str] = {}
    for i, image in enumerate(images or []):
        told = isinstance(image, dict) and isinstance(image.get("file_name"), str)
        if not told or not isinstance(image.get("id"), int | str):
            log.bad(file, f"images[{i}]", "no 'id' and 'file_name'.")
            continue
        names[image["id"]] = within + image["file_name"]
        if split is not None:
            growth.split(split).image(names[image["id"]])
    for i, annotation in enumerate(annotations or []):
        _read_annotation(annotation, (number, i, 0), names, split, growth, log)


_LISTS = ("images", "annotations")


def _read_annotation(
    annotation: Any,
    at: tuple[int, int, int],
    names: dict[Any, str],
    split: str | None,
    growth: Growth,
    log: Log,
) -> None:
    file, place = growth.files[at[0]], f"annotations[{at[1]}]"
    text = annotation.get("caption") if isinstance(annotation, dict) else None
    if not isinstance(text, str):
        log.bad(file, place, "no 'caption' text.")
        return
    owner = annotation.get("image_id")
    name = names.get(owner) if isinstance(owner, int | str) else None
    if name is None:
        log.bad(file, place, f"its 'image_id' {owner!r:.40} is not among the images.")
        return
    growing = growth.split_of(name, split)
    identifier = annotation.get("id")
    growing.caption(growing.image(name), text, None if identifier is None else str(identifier), at)
