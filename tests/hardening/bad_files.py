"""Pictures, arrays and pickles that cannot be right, by name: each must be refused."""

import io
import os
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from simgrad.data import open_dataset
from simgrad.data.vocabulary import read_published
from simgrad.models.unpickle import read_tensors
from tests.data import layout_writers as write


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose head says it is huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    """A picture as a file of a kind."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def first_picture(folder: Path) -> Image.Image:
    pictures = open_dataset(folder).split("train").pictures
    assert pictures is not None
    return pictures.picture(0)


def with_picture(folder: Path, data: bytes) -> Image.Image:
    """A data set whose first picture is these bytes; the picture."""
    (write.karpathy(folder) / "images" / "a.jpg").write_bytes(data)
    return first_picture(folder)


def _put(make: Callable[[Path], object]) -> Callable[[Path, Path], object]:
    """In the place of the first picture there is something else."""

    def attempt(folder: Path, run: Path) -> object:
        place = write.karpathy(folder) / "images" / "a.jpg"
        place.unlink()
        make(place)
        return first_picture(folder)

    return attempt


def _bytes(data: Callable[[], bytes]) -> Callable[[Path, Path], object]:
    return lambda folder, run: with_picture(folder, data())


def _outside(place: Path) -> None:
    secret = place.parent.parent / "secret.txt"
    secret.write_text("root:x:0:0\n")
    place.symlink_to(secret)


def _features(array: np.ndarray) -> Callable[[Path, Path], object]:
    def attempt(folder: Path, run: Path) -> object:
        np.save(write.precomp(folder) / "train_ims.npy", array)
        features = open_dataset(folder).split("train").features
        assert features is not None
        return features.rows(np.arange(4))

    return attempt


def _changed(value: float) -> np.ndarray:
    array = write.features(4)
    array[2, 1] = value
    return array


def _laughs(depth: int) -> bytes:
    """Lists of ten times the list before, and the text of the last: ten to the power of depth."""
    lists = [b"](" + (b"h" + bytes([k])) * 10 + b"eq" + bytes([k + 1]) for k in range(depth)]
    end = b"c__builtin__\nstr\nh" + bytes([depth]) + b"\x85R."
    return b"\x80\x02]q\x00K\x01a" + b"".join(lists) + end


def _legacy(stream: bytes) -> bytes:
    """A checkpoint as torch wrote them before 1.6, with this for its contents."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    return b"".join(pickle.dumps(part, 2) for part in head) + stream


def _read(name: str, data: bytes) -> Callable[[Path, Path], object]:
    def attempt(folder: Path, run: Path) -> object:
        (folder / name).write_bytes(data)
        return (read_tensors if name.endswith(".pth") else read_published)(folder / name)

    return attempt


def _digits(name: str, text: str) -> Callable[[Path, Path], object]:
    """A data set with a number of 5,000 digits, which Python does not read."""

    def attempt(folder: Path, run: Path) -> object:
        (folder / name).write_text(text.replace("NUMBER", "9" * 5000) + "\n")
        return open_dataset(folder)

    return attempt


def _shard(folder: Path, run: Path) -> object:
    with tarfile.open(folder / "train-0000.tar", "w") as archive:
        write.add_member(archive, "b.jpg", write.picture_bytes("b.jpg"))
        write.add_member(archive, "b.json", b'{"caption": ' + b"9" * 5000 + b"}")
    return open_dataset(folder)


FILES: dict[str, Callable[[Path, Path], object]] = {
    "picture: 20,000 x 20,000": _bytes(lambda: bomb(20_000, 20_000)),
    "picture: 13,000 x 13,000 in 100 bytes": _bytes(lambda: bomb(13_000, 13_000)),
    "picture: no width": _bytes(lambda: bomb(0, 5)),
    "picture: text renamed": _bytes(lambda: b"A dog runs.\n" * 50),
    "picture: a page of the web": _bytes(lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    "picture: half": _bytes(lambda: encoded(Image.effect_noise((99, 99), 90), "PNG")[:3000]),
    "picture: link out of the folder": _put(_outside),
    "picture: link to nothing": _put(lambda place: place.symlink_to(place.parent / "gone.jpg")),
    "picture: a folder": _put(os.mkdir),
    "features: infinite": _features(_changed(np.inf)),
    "features: complex": _features(np.zeros((4, 6), np.complex64)),
    "features: texts": _features(np.full((4, 6), "a")),
    "features: no rows": _features(np.zeros((0, 6), np.float32)),
    "features: a single number": _features(np.float32(1)),  # type: ignore[arg-type]
    "vocabulary: an object numbered 2^27": _read("v.pkl", b"\x80\x02Nr\xff\xff\xff\x07."),
    "vocabulary: numbered in digits": _read("v.pkl", b"Np134217727\n."),
    "vocabulary: longer than itself": _read("v.pkl", b"\x96#U^V\t)\x95e"),
    "vocabulary: billion laughs": _read("v.pkl", _laughs(12)),
    "data: digits without end": _digits("dataset_x.json", '{"images": [NUMBER]}'),
    "data: digits in a line": _digits("captions.jsonl", '{"image": "a", "caption": NUMBER}'),
    "data: digits in a list": _digits("coco_train.json", '[{"image": "a", "caption": NUMBER}]'),
    "data: digits in a header": _digits("features.json", '{"splits": NUMBER}'),
    "data: digits in a shard": _shard,
    "vocabulary: digits without end": _read("v.json", b'{"word2idx": {"a": %s}}' % (b"9" * 5000)),
    "tensors: an empty stack": _read("a.pth", _legacy(b"\x80\x02a.")),
    "tensors: a call without arguments": _read(
        "a.pth", _legacy(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.")
    ),
}
