"""Embeddings kept on disk: made once for a model and a set of pictures, added to when it grows.

RUN/search/KEY/ (or the cache folder, where the run's is not writable) holds what the weights with
hash KEY made. Arrays are named after their content's key and never changed; index.json, written
last, says which belong together. So a reader sees the old state or the new one, and a killed
writer leaves nothing that counts. One writer at a time: the others wait for its lock.
"""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simgrad.core.cache import cache_folder
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, lock, read_json, sweep, write_json
from simgrad.data.base import Dataset, Split
from simgrad.models import Encoded
from simgrad.runs.encoding import encode_source
from simgrad.runs.prepare import source_of
from simgrad.serve.embedder import Embedder

INDEX = "index.json"
_PARTS = ("vectors", "tokens", "mask")


def place_of(embedder: Embedder) -> Path:
    """Where this model's embeddings are kept."""

    own = embedder.path / "search" / embedder.key
    try:
        own.mkdir(parents=True, exist_ok=True)
        if os.access(own, os.W_OK):
            return own
    except OSError:
        pass
    return cache_folder() / "search" / embedder.key


def write_encoded(folder: Path, name: str, encoded: Encoded) -> None:
    """vectors, tokens and mask as NAME.PART.npy."""
    for part in _PARTS:
        tensor: Tensor | None = getattr(encoded, part)
        if tensor is not None:
            with atomic_path(folder / f"{name}.{part}.npy") as path, open(path, "wb") as file:
                np.save(file, tensor.cpu().numpy(), allow_pickle=False)


def read_encoded(folder: Path, name: str) -> Encoded:
    """What `write_encoded` wrote, memory-mapped."""
    parts: dict[str, Tensor] = {}
    for part in _PARTS:
        path = folder / f"{name}.{part}.npy"
        if path.is_file():
            # Copy-on-write: torch wants memory it may write to, the file stays as it is.
            parts[part] = torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
    if not parts:
        raise FileNotFoundError(folder / name)
    return Encoded(**parts)


def split_embeddings(
    embedder: Embedder, dataset: Dataset, split: Split, fingerprint: str
) -> tuple[Encoded, Encoded]:
    """Images and captions of a split."""
    folder = place_of(embedder) / f"{split.name}-{fingerprint[:16]}"
    ready = _ready_split(folder)
    if ready is not None:
        return ready
    try:
        with lock(folder.with_suffix(".lock"), what=f"the embeddings of {dataset.name}"):
            ready = _ready_split(folder)
            if ready is not None:
                return ready
            sweep(folder)
            images, captions = _encode(embedder, split)
            write_encoded(folder, "images", images)
            write_encoded(folder, "captions", captions)
            write_json(folder / INDEX, {"images": len(images), "captions": len(captions)})
            return images, captions
    except OSError:  # no place to keep them: make them each time
        return _encode(embedder, split)


def _ready_split(folder: Path) -> tuple[Encoded, Encoded] | None:
    if not (folder / INDEX).is_file():
        return None
    try:
        index = read_json(folder / INDEX)
        images, captions = read_encoded(folder, "images"), read_encoded(folder, "captions")
        whole = (len(images), len(captions)) == (index["images"], index["captions"])
        return (images, captions) if whole else None
    except (InputError, OSError, ValueError, KeyError, TypeError):
        return None  # damaged: made again


def _encode(embedder: Embedder, split: Split) -> tuple[Encoded, Encoded]:

    assert embedder.run is not None
    source = source_of(
        split, embedder.tokenizer, embedder.model, embedder.device, embedder.run.recipe
    )
    images, captions = encode_source(embedder.model, source)
    return images.to("cpu"), captions.to("cpu")
