"""Fake trees with the names, shapes and numbers of Flickr30k and COCO, and next to no content.

Numbers of images and captions are the real ones: 31,783 pictures of which Karpathy's file names
31,014, and 123,287. Features have 36 regions of four numbers, all pictures are one.
"""

import json
import os
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from simgrad.data.vocabulary import SPECIALS

F30K = {"train": 29_000, "val": 1_014, "test": 1_000}
COCO = {"train": 82_783, "restval": 30_504, "val": 5_000, "test": 5_000}
F30K_PICTURES = 31_783
REGIONS, _DIMENSION = 36, 4
_MOST_LINKS = 30_000  # of one file; file systems have a limit
_WORDS = [f"word{i}" for i in range(40)]


def caption(image: int, k: int) -> str:
    words = (_WORDS[(image + j * (k + 1)) % len(_WORDS)] for j in range(4))
    return f"a {' '.join(words)}"


def flickr30k(
    root: Path,
    train: int = F30K["train"],
    val: int = F30K["val"],
    pictures: int = F30K_PICTURES,
    regions: int = REGIONS,
) -> Path:
    """ROOT/f30k with pictures, ROOT/f30k_precomp with regions; fewer where tests must be fast."""
    names = [f"{1_000_000 + 7 * i}.jpg" for i in range(F30K_PICTURES)]
    _pictures(root / "f30k" / "flickr30k-images", names[:pictures])
    images, row = [], 0
    for split, count in {**F30K, "train": train, "val": val}.items():
        for _ in range(count):
            images.append(_karpathy(row, names[row], split, 5))
            row += 1
    _json(root / "f30k" / "dataset_flickr30k.json", images, "flickr30k")
    precomputed = root / "f30k_precomp"
    for split, count in (("train", train), ("dev", val), ("test", 1_000)):
        _precomputed(precomputed, split, count, regions)
    return root


def coco(
    root: Path,
    train: int = COCO["train"],
    restval: int = COCO["restval"],
    val: int = COCO["val"],
    regions: int = REGIONS,
) -> Path:
    """ROOT/coco with pictures, ROOT/coco_precomp with regions; fewer where tests must be fast."""
    images, files, row = [], [], 0
    for split, count in {**COCO, "train": train, "restval": restval, "val": val}.items():
        folder = "train2014" if split == "train" else "val2014"
        for _ in range(count):
            name = f"COCO_{folder}_{row:012d}.jpg"
            captions = 7 if row % 5_000 == 0 else 6 if row % 300 == 0 else 5  # as in the real one
            record = _karpathy(row, name, split, captions)
            images.append(record | {"filepath": folder, "cocoid": row})
            files.append(f"{folder}/{name}")
            row += 1
    _pictures(root / "coco" / "images", files)
    _json(root / "coco" / "dataset_coco.json", images, "coco")
    precomputed = root / "coco_precomp"
    whole = train + restval
    for split, count in (("train", whole), ("dev", val), ("test", 1_000), ("testall", 5_000)):
        _precomputed(precomputed, split, count, regions)
    return root


def vocabularies(root: Path) -> None:
    """ROOT/vocab with the names of the published files: pickles of VSE++, JSON of SCAN."""
    (root / "vocab").mkdir(parents=True)
    words = [*SPECIALS, "a", *_WORDS]
    for name in ("f30k", "coco"):
        for kind in (name, f"{name}_precomp"):
            (root / "vocab" / f"{kind}_vocab.pkl").write_bytes(_pickled(words))
        told = {"word2idx": {w: i for i, w in enumerate(words)}, "idx": len(words)}
        told["idx2word"] = {str(i): w for i, w in enumerate(words)}
        (root / "vocab" / f"{name}_precomp_vocab.json").write_text(json.dumps(told))


def _pickled(words: list[str]) -> bytes:
    """As VSE++'s code writes it: an object of its module `vocab`."""
    module: Any = types.ModuleType("vocab")

    class Vocabulary:
        pass

    Vocabulary.__module__, Vocabulary.__qualname__ = "vocab", "Vocabulary"
    module.Vocabulary = Vocabulary
    sys.modules["vocab"] = module
    try:
        made: Any = Vocabulary()
        made.word2idx = {word: i for i, word in enumerate(words)}
        made.idx2word = dict(enumerate(words))
        made.idx = len(words)
        return pickle.dumps(made, protocol=2)
    finally:
        del sys.modules["vocab"]


def _karpathy(row: int, name: str, split: str, captions: int) -> dict[str, Any]:
    sentences = [{"raw": caption(row, k), "sentid": 5 * row + k} for k in range(captions)]
    return {"filename": name, "imgid": row, "split": split, "sentences": sentences}


def _json(path: Path, images: list[dict[str, Any]], name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "dataset": name}))


def _precomputed(folder: Path, split: str, images: int, regions: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"{caption(i, k)}\n" for i in range(images) for k in range(5))
    with open(folder / f"{split}_caps.txt", "w") as file:
        file.writelines(lines)
    (folder / f"{split}_ids.txt").write_text("".join(f"{i}\n" for i in range(images)))
    random = np.random.default_rng(images)
    array = random.standard_normal((images, regions, _DIMENSION), dtype=np.float32)
    np.save(folder / f"{split}_ims.npy", array)


def _pictures(root: Path, names: list[str]) -> None:
    for folder in {str(Path(name).parent) for name in names}:
        (root / folder).mkdir(parents=True, exist_ok=True)
    masters = _masters(root)
    master = next(masters)
    for number, name in enumerate(names):
        if number % _MOST_LINKS == _MOST_LINKS - 1:
            master = next(masters)
        os.link(master, root / name)


def _masters(root: Path) -> Iterator[Path]:
    number = 0
    while True:
        path = root.parent / f"picture-{number}.jpg"
        Image.new("RGB", (16, 12), (40, 90, 160)).save(path)
        yield path
        number += 1
