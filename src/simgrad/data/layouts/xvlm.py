"""X-VLM's json: lists of {image, caption}; a string in train files, a list in the others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import Growth, known_split
from simgrad.data.log import Log


@declare(
    "x-vlm",
    paper="Zeng et al., ICML 2022",
    description="*_train.json, *_val.json, *_test.json lists of image, caption",
)
@dataclass(frozen=True)
class XVLM(Layout):
    """Records of an image and its caption or captions."""

    def parts(self, path: Path) -> dict[str, bool]:
        files = [path] if path.is_file() else list(path.glob("*.json"))
        return {
            "*.json": any(file.suffix == ".json" for file in files),
            "its name ends in train, val or test": any(map(_split_of, files)),
            'in it a list of {"image", "caption"}': bool(_files(path)),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        files = _files(path)
        if not files:
            raise InputError(
                f"{path}: no *_train.json, *_val.json or *_test.json of X-VLM's shape."
            )
        folder = path if path.is_dir() else path.parent
        growth = Growth(folder.name, files=list(files), pattern="record {}, caption {}")
        for number, (file, split) in enumerate(files.items()):
            if split in growth.splits:
                raise InputError(f"{file}: a second file for the split '{split}'; name one file.")
            records = read_json(file)
            if not isinstance(records, list):
                raise InputError(f"{file}: a list of records is needed.")
            growth.split(split)
            for i, record in enumerate(records):
                _read_record(record, (number, i), split, growth, log)
        return growth.finish(folder, published)


def _files(path: Path) -> dict[Path, str]:
    """Each json file and its split, from its name: coco_train.json, flickr30k_test.json."""
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    named = {}
    for file in files:
        split = _split_of(file)
        if file.suffix == ".json" and split and _looks_right(file):
            named[file] = split
    return named


def _split_of(file: Path) -> str | None:
    parts = [part for part in file.stem.lower().replace("-", "_").split("_") if part]
    return next((known for part in reversed(parts) if (known := known_split(part))), None)


def _looks_right(file: Path) -> bool:
    if not file.is_file():  # a pipe is not asked what it holds
        return False
    with open(file, "rb") as opened:
        head = opened.read(4096)
    start = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    return start.startswith(b"[") and b'"image"' in head and b'"caption"' in head


def _read_record(record: Any, at: tuple[int, int], split: str, growth: Growth, log: Log) -> None:
    file, place = growth.files[at[0]], f"record {at[1]}"
    image = record.get("image") if isinstance(record, dict) else None
    if not isinstance(image, str) or not image:
        log.bad(file, place, "no 'image'.")
        return
    captions = record.get("caption")
    if isinstance(captions, str):
        captions = [captions]
    if not isinstance(captions, list) or not captions:
        log.bad(file, place, f"{image} has no 'caption'.")
        return
    growing = growth.split(split)
    row = growing.image(image)
    for k, caption in enumerate(captions):
        if not isinstance(caption, str):
            log.bad(file, f"{place}, caption {k}", f"{image}: a caption that is not text.")
            continue
        growing.caption(row, caption, at=(*at, k))
