"""Writes small data sets in each layout as the layout's own project writes them."""

import csv
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# image -> its captions; other counts than five on purpose, other scripts too
WORLD: dict[str, dict[str, list[str]]] = {
    "train": {
        "a.jpg": ["A dog runs .", "The brown dog isn't still .", "एक कुत्ता दौड़ता है"],
        "b.jpg": ["Two men, one hat .", "Men in hats ."],
        "c.jpg": ["A red car ."],
    },
    "val": {"d.jpg": ["A cat .", "猫が寝ている。"]},
    "test": {"e.jpg": ["A boat .", "A ship at sea .", "Un bateau à voile ."]},
}
# the precomputed layouts need the same number for each image
FIVE = {
    split: {
        f"{split}{i}": [f"{split} caption {k} of image {i} ." for k in range(5)] for i in range(n)
    }
    for split, n in (("train", 4), ("dev", 2), ("test", 3))
}


def colour(name: str) -> tuple[int, int, int]:
    """Each picture has a colour of its own, so that a test knows it again."""
    return (sum(name.encode()) * 7 % 256, 40, 200)


def picture_bytes(name: str, size: tuple[int, int] = (12, 8)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour(name)).save(out, "JPEG", quality=95)
    return out.getvalue()


def write_pictures(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture_bytes(Path(name).name))


def world_names() -> list[str]:
    return [name for images in WORLD.values() for name in images]


def karpathy(folder: Path, coco: bool = False) -> Path:
    records: list[dict[str, Any]] = []
    sentence = 0
    for split, images in WORLD.items():
        for i, (name, captions) in enumerate(images.items()):
            record: dict[str, Any] = {"filename": name, "imgid": len(records), "split": split}
            record["sentences"] = [
                {"raw": text, "tokens": text.lower().split(), "sentid": 700 + sentence + k}
                for k, text in enumerate(captions)
            ]
            record["sentids"] = [s["sentid"] for s in record["sentences"]]
            sentence += len(captions)
            if coco:
                record["filepath"] = "val2014" if split != "train" or i == 2 else "train2014"
                record["cocoid"] = 9000 + len(records)
                record["split"] = "restval" if (split, i) == ("train", 2) else split
            records.append(record)
    write_pictures(
        folder / "images",
        [f"{r['filepath']}/{r['filename']}" if coco else r["filename"] for r in records],
    )
    name = "coco" if coco else "flickr8k"
    value = {"dataset": name, "images": records}
    (folder / f"dataset_{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def features(rows: int, shape: tuple[int, ...] = (6,), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, *shape)).astype(np.float32)


def precomp(
    folder: Path, shape: tuple[int, ...] = (6,), per_caption: bool = False, ids: bool = False
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, images in FIVE.items():
        captions = [text for texts in images.values() for text in texts]
        (folder / f"{split}_caps.txt").write_text("".join(f"{c}\n" for c in captions), "utf-8")
        array = features(len(images), shape)
        np.save(folder / f"{split}_ims.npy", np.repeat(array, 5, axis=0) if per_caption else array)
        if ids:
            names = [
                str(100 + i) for i in range(len(images)) for _ in range(5 if per_caption else 1)
            ]
            (folder / f"{split}_ids.txt").write_text("\n".join(names) + "\n")
    return folder


def vse_infinity(folder: Path, raw: bool) -> Path:
    precomp(folder / "precomp", (36, 8), ids=True)
    mapping = {}
    for split, images in FIVE.items():
        for i in range(len(images)):
            mapping[str(100 + i)] = f"train2014/{100 + i}.jpg"
            write_pictures(folder / "images", [f"train2014/{100 + i}.jpg"])
        if raw:
            (folder / "precomp" / f"{split}_ims.npy").unlink()
    (folder / "id_mapping.json").write_text(json.dumps(mapping))
    return folder


def x_vlm(folder: Path) -> Path:
    write_pictures(folder / "images", world_names())
    for split, images in WORLD.items():
        records: list[dict[str, Any]] = []
        for i, (name, captions) in enumerate(images.items()):
            if split == "train":
                records += [{"image": name, "caption": c, "image_id": f"x_{i}"} for c in captions]
            else:
                records.append({"image": name, "caption": captions})
        (folder / f"coco_{split}.json").write_text(json.dumps(records))
    return folder


def world_rows() -> list[tuple[str, str, str]]:
    return [
        (name, caption, split)
        for split, images in WORLD.items()
        for name, captions in images.items()
        for caption in captions
    ]


def caption_table(folder: Path, suffix: str) -> Path:
    write_pictures(folder, world_names())
    file = folder / f"captions{suffix}"
    header = ["image", "caption", "split"]
    if suffix == ".jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in world_rows()]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        columns = dict(zip(header, map(list, zip(*world_rows(), strict=True)), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
    else:
        with open(file, "w", newline="", encoding="utf-8") as opened:
            writer = csv.writer(opened, delimiter="\t" if suffix == ".tsv" else ",")
            writer.writerows([header, *world_rows()])
    return folder


def side_by_side(folder: Path) -> Path:
    for split, images in WORLD.items():
        write_pictures(folder / split, list(images))
        for name, captions in images.items():
            text = "\n".join(captions) + "\n"
            (folder / split / name).with_suffix(".txt").write_text(text, encoding="utf-8")
    return folder


def add_member(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def webdataset(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, images in WORLD.items():
        for shard, names in enumerate([list(images)[:2], list(images)[2:]]):
            if not names:
                continue
            with tarfile.open(folder / f"{split}-{shard:04d}.tar", "w") as archive:
                for i, name in enumerate(names):
                    stem = Path(name).stem
                    add_member(archive, name, picture_bytes(name))
                    if i == 0:
                        text = "\n".join(images[name])
                        add_member(archive, f"{stem}.txt", text.encode())
                    else:
                        value = json.dumps({"captions": images[name]})
                        add_member(archive, f"{stem}.json", value.encode())
    return folder


def simgrad_features(folder: Path, data: Path, names: dict[str, list[str]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    splits = {}
    for split, images in names.items():
        backwards = images[::-1]  # rows are found by name, not by place
        array = np.array([colour(Path(n).name) for n in backwards], dtype=np.float16)
        np.save(folder / f"{split}.npy", array)
        splits[split] = {"file": f"{split}.npy", "images": backwards}
    header = {"layout": "simgrad-features", "data": str(data), "backbone": "test", "grid": None}
    header |= {"weights_sha256": "0" * 64, "splits": splits}
    (folder / "features.json").write_text(json.dumps(header))
    return folder


def many_shards(folder: Path, count: int, each: int) -> Path:
    """Made-up pairs in tar shards, the first for val, the second for test; headers from a template,
    because tarfile takes minutes for a million."""
    folder.mkdir(parents=True)
    picture = picture_bytes("a.jpg")
    parts = {"jpg": picture, "txt": b"a red dog sits near the water, number 00000000"}
    headers = {}
    for suffix, data in parts.items():
        info = tarfile.TarInfo(f"00000000.{suffix}")
        info.size = len(data)
        header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
        headers[suffix] = header, int(header[148:154], 8) - sum(b"00000000")
    for shard in range(count // each):
        split = ("val", "test")[shard] if shard < 2 else "train"
        with open(folder / f"{split}-{shard:05d}.tar", "wb") as file:
            for number in range(shard * each, (shard + 1) * each):
                digits = b"%08d" % number
                for suffix, data in parts.items():
                    header, checksum = headers[suffix]
                    header[:8] = digits
                    header[148:154] = b"%06o" % (checksum + sum(digits))
                    whole = data if suffix == "jpg" else data[:-8] + digits
                    file.write(bytes(header) + whole + bytes(-len(whole) % 512))
            file.write(bytes(10240))
    return folder
