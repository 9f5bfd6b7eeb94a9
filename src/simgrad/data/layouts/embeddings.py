"""Vectors of both sides, made before by any networks: pictures and captions, or any two things.

One file with the arrays `images` and `texts` (.npz, .safetensors, .parquet), a folder with a file
for each split (train.npz, val.npz, test.npz), a folder with images.npy and texts.npy, or what
Hugging Face's `save_to_disk` wrote. Beside them may stand `image_of_caption` (the row of each
text's image; without it an image's texts stand together), `image_ids`, `caption_ids`, `text` (the
texts themselves) and `split` (of each image).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.array_files import IMAGES, SUFFIXES, TEXTS, is_saved, read_arrays
from simgrad.data.arrays import ArrayFeatures
from simgrad.data.base import Dataset, Rows, Split
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import HASHED_NOTE, hashed_split, known_split, split_name
from simgrad.data.log import Log
from simgrad.data.subset import take

_FILES = SUFFIXES[1:]  # .npy holds one array only
_DICT, _ORDER = "dataset_dict.json", ("train", "val", "test")
_WORDS = ("text", "caption", "sentence")
_IMAGE_IDS, _CAPTION_IDS = ("image_ids", "image_id", "ids", "id"), ("caption_ids", "caption_id")


@declare(
    "embeddings",
    paper="",
    description="vectors of both sides in .npz, .safetensors, .parquet or .npy",
)
@dataclass(frozen=True)
class EmbeddingFiles(Layout):
    """Image vectors and text vectors with their pairing."""

    def parts(self, path: Path) -> dict[str, bool]:
        return {"arrays 'images' and 'texts'": bool(_places(path))}

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        places = _places(path)
        if not places:
            raise InputError(f"{path}: no vectors there, in arrays called 'images' and 'texts'.")
        notes: list[str] = []
        if list(places) == [""]:
            splits = _cut(_whole(path.stem, "all", places[""]), places[""], notes)
        else:
            order = sorted(places, key=lambda name: (*_ORDER, name).index(name))
            splits = {name: _whole(path.name, name, places[name]) for name in order}
        return Dataset(path.stem, "", splits, tuple(notes))


def _places(path: Path) -> dict[str, dict[str, Path]]:
    """Split -> where its arrays are, by name; "" for a place without splits. Empty: not one."""
    if path.is_file():
        return {"": {"": path}} if path.suffix in _FILES and _has_both(path) else {}
    if is_saved(path):
        return {"": {"": path}} if _both(_saved_columns(path)) else {}
    if not path.is_dir():
        return {}
    if (path / _DICT).is_file():
        found = {split_name(name): path / name for name in _saved_splits(path / _DICT)}
        fits = bool(found) and all(_both(_saved_columns(one)) for one in found.values())
        return {name: {"": one} for name, one in found.items()} if fits else {}
    pair = {name: path / f"{name}.npy" for name in ("images", "texts")}
    if all(file.is_file() for file in pair.values()):
        more = {file.stem: file for file in path.glob("*.npy")}
        return {"": more}
    files = {known_split(file.name): file for file in sorted(path.iterdir())
             if file.suffix in _FILES}  # fmt: skip
    fits = bool(files) and None not in files and all(map(_has_both, files.values()))
    return {str(name): {"": file} for name, file in files.items()} if fits else {}


def _both(names: Any) -> bool:
    return any(one in names for one in IMAGES) and any(one in names for one in TEXTS)


def _saved_splits(file: Path) -> list[str]:
    told = read_json(file)
    names = told.get("splits") if isinstance(told, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{file}: it names no splits. Save the data set again.")
    return names


def _saved_columns(folder: Path) -> list[str]:
    """Columns that hold lists of numbers."""
    try:
        told = json.loads((folder / "dataset_info.json").read_text("utf-8"))["features"]
        return [name for name, kind in told.items() if "float" in str(_inner(kind))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _inner(kind: Any) -> Any:
    """What a list is of."""
    listed = isinstance(kind, dict) and kind.get("_type") in ("List", "Sequence", "LargeList")
    return kind.get("feature", {}).get("dtype") if listed else None


def _has_both(file: Path) -> bool:
    """Whether a file has vectors of both sides, told by names alone."""
    try:
        if file.suffix == ".npz":
            from zipfile import ZipFile

            with ZipFile(file) as archive:
                return _both([name.removesuffix(".npy") for name in archive.namelist()])
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(file, "numpy") as held:
                return _both(list(held.keys()))
        import pyarrow as arrow
        from pyarrow import parquet

        listed = (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
        return _both([c.name for c in parquet.read_schema(file) if any(k(c.type) for k in listed)])
    except Exception:  # damaged, or of another kind: not of this layout
        return False


def _whole(dataset: str, name: str, files: Mapping[str, Path]) -> Split:
    """Everything in one place as one split."""
    arrays: dict[str, Any] = {}
    for key, file in files.items():
        held = read_arrays(file)
        arrays |= {key: next(iter(held.values()))} if key else held
    where = next(iter(files.values()))
    images, texts = (_vectors(arrays, names, where) for names in (IMAGES, TEXTS))
    names = _strings(arrays, _IMAGE_IDS) or [f"{name}-{row}" for row in range(len(images))]
    pairing, rows = _pairing(arrays, len(images), len(texts), where), None
    if len(names) == len(images) == len(texts) and len(set(names)) < len(names):
        places: dict[str, int] = {}  # an image stands beside each of its texts
        pairing = np.array([places.setdefault(one, len(places)) for one in names], dtype=np.int64)
        rows = np.unique(pairing, return_index=True)[1].astype(np.int64)
        names = list(places)
    ids = _strings(arrays, _CAPTION_IDS)
    words = _strings(arrays, _WORDS) or ids or [str(row) for row in range(len(texts))]
    count = len(images) if rows is None else len(rows)
    for what, found, wanted in (("image ids", names, count), ("texts", words, len(texts))):
        if len(found) != wanted:
            raise InputError(f"{where}: {len(found):,} {what} for {wanted:,} vectors.")
    return Split(
        dataset,
        name,
        words,
        pairing,
        names,
        features=ArrayFeatures(files.get("images", where), images, rows),
        caption_ids=ids,
        caption_places=lambda row: f"{files.get('texts', where)}, row {row}",
        caption_vectors=ArrayFeatures(files.get("texts", where), texts),
    )


def _vectors(arrays: Mapping[str, Any], names: tuple[str, ...], where: Path) -> npt.NDArray[Any]:
    name = next(one for one in names if one in arrays)
    array = arrays[name]
    if not isinstance(array, np.ndarray):  # torch's, of safetensors; numpy has no bfloat16
        array = array.float().numpy()
    if array.ndim != 2 or array.dtype.kind != "f" or 0 in array.shape:
        raise InputError(
            f"{where}: '{name}' should hold vectors, (rows, dimension) of floating-point numbers, "
            f"not {array.shape} of {array.dtype}."
        )
    return np.asarray(array)


def _pairing(arrays: Mapping[str, Any], images: int, texts: int, where: Path) -> Rows:
    if "image_of_caption" in arrays:
        told = np.asarray(arrays["image_of_caption"])
        if told.dtype.kind not in "iu" or told.shape != (texts,):
            raise InputError(
                f"{where}: 'image_of_caption' is a whole number for each of {texts:,} texts, not "
                f"{told.shape} of {told.dtype}."
            )
        return told.astype(np.int64)
    if texts % images:
        raise InputError(
            f"{where}: {images:,} images and {texts:,} texts: which text belongs to which image? "
            "Give an array 'image_of_caption', the row of each text's image."
        )
    return np.repeat(np.arange(images), texts // images)


def _strings(arrays: Mapping[str, Any], names: tuple[str, ...]) -> list[str] | None:
    found = next((arrays[name] for name in names if name in arrays), None)
    return None if found is None else [str(one) for one in found.tolist()]


def _cut(whole: Split, files: Mapping[str, Path], notes: list[str]) -> dict[str, Split]:
    """By a column `split` with a word for each image, else 80/10/10."""
    place = next(iter(files.values()))
    told = None
    if "" in files or "split" in files:
        told = read_arrays(files.get("split", place)).get("split" if "" in files else "")
    if told is None:
        notes.append(HASHED_NOTE)
        labels = np.array([hashed_split(name) for name in whole.image_names])
    else:
        labels = np.array([split_name(str(one)) for one in told.tolist()])
    if len(labels) != whole.num_images:
        raise InputError(f"{place}: {len(labels):,} splits for {whole.num_images:,} images.")
    every = np.ones(whole.num_captions, dtype=bool)
    names = [one for one in _ORDER if one in labels]
    return {
        name: replace(take(whole, labels == name, every), name=name)
        for name in [*names, *sorted(set(labels.tolist()) - set(names))]
    }
