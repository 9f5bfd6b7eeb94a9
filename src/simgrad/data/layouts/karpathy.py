"""Karpathy's split files: dataset_{flickr8k,flickr30k,coco}.json and a folder of images.

{"images": [{"filename", "split", "sentences": [{"raw", "tokens", "sentid"}]}]}; COCO adds
"filepath" (train2014, val2014), "cocoid" and the split "restval", which belongs to train.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import Growth, split_name
from simgrad.data.log import Log


@declare(
    "karpathy",
    paper="Karpathy and Fei-Fei, CVPR 2015",
    description="dataset_*.json + images (Flickr8k, Flickr30k, COCO)",
)
@dataclass(frozen=True)
class Karpathy(Layout):
    """Every image with its split and its sentences."""

    def parts(self, path: Path) -> dict[str, bool]:
        files = [path] if path.is_file() else path.glob("*.json")
        return {
            "dataset_*.json": any(file.suffix == ".json" for file in files),
            "in it a list 'images' with their 'sentences'": bool(_candidates(path)),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        files = _candidates(path) or ([path] if path.is_file() else [])
        if len(files) != 1:
            names = ", ".join(str(file) for file in files) or "no dataset*.json"
            raise InputError(f"{path}: {names}; name the one json file to read.")
        file = files[0]
        value = read_json(file)
        images = value.get("images") if isinstance(value, dict) else None
        if not isinstance(images, list):
            raise InputError(f"{file}: needs a list 'images' at the top.")
        name = value.get("dataset")
        growth = Growth(name if isinstance(name, str) and name else file.stem)
        growth.files, growth.pattern = [file], "images[{}].sentences[{}]"
        seen: dict[str, str] = {}
        for i, record in enumerate(images):
            _read_image(record, i, growth, log, seen)
        merged = sum(isinstance(r, dict) and r.get("split") == "restval" for r in images)
        if merged:
            growth.notes.append(f"restval: its {merged:,} images are part of train")
        return growth.finish(file.parent, published)


def _candidates(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".json" and _looks_right(path) else []
    named = [file for file in sorted(path.glob("dataset*.json")) if _looks_right(file)]
    return named or [file for file in sorted(path.glob("*.json")) if _looks_right(file, True)]


def _looks_right(file: Path, surely: bool = False) -> bool:
    """Judge by the head of the file: the whole of COCO's takes seconds to parse."""
    if not file.is_file():  # a pipe is not asked what it holds
        return False
    with open(file, "rb") as opened:
        head = opened.read(4096)
    begins = b'"images"' in head and head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")
    return begins and (b'"sentences"' in head if surely else b'"file_name"' not in head)


def _read_image(record: Any, number: int, growth: Growth, log: Log, seen: dict[str, str]) -> None:
    file, place = growth.files[0], f"images[{number}]"
    if not isinstance(record, dict):
        log.bad(file, place, "not an object.")
        return
    filename, split = record.get("filename"), record.get("split")
    if not isinstance(filename, str) or not filename:
        log.bad(file, place, "no 'filename'.")
        return
    if not isinstance(split, str) or not split.strip():
        log.bad(file, place, f"{filename} has no 'split'.")
        return
    sentences = record.get("sentences")
    if not isinstance(sentences, list) or not sentences:
        log.bad(file, place, f"{filename} has no 'sentences'.")
        return
    folder = record.get("filepath")
    name = f"{folder}/{filename}" if isinstance(folder, str) and folder else filename
    if name in seen:
        log.bad(file, place, f"{name} is there already, at {seen[name]}.")
        return
    seen[name] = place
    growing = growth.split(split_name(split))
    row = growing.image(name)
    for k, sentence in enumerate(sentences):
        text = _text(sentence)
        if text is None:
            log.bad(file, f"{place}.sentences[{k}]", f"{filename}: a sentence without 'raw' text.")
            continue
        # COCO's sentence ids are those of its annotations; Flickr's captions are "file#k".
        coco = "cocoid" in record and isinstance(sentence, dict) and "sentid" in sentence
        identifier = str(sentence["sentid"]) if coco else f"{filename}#{k}"
        growing.caption(row, text, identifier, (0, number, k))


def _text(sentence: Any) -> str | None:
    if not isinstance(sentence, dict):
        return None
    raw, tokens = sentence.get("raw"), sentence.get("tokens")
    if isinstance(raw, str):
        return raw
    if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens):
        return " ".join(tokens)
    return None
