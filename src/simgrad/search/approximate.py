"""FAISS for sets above a million items: cells of similar vectors, of which the nearest are read."""

import hashlib
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from simgrad.core.derived import Damaged, read_kept, write_kept
from simgrad.core.files import atomic_path, lock
from simgrad.core.hashes import content_hash

LARGE = 1_000_000
_PROBES = 64  # cells read per query


def available() -> bool:
    """Whether the extra `faiss` is installed."""
    return find_spec("faiss") is not None


class Approximate:
    """An inverted file over unit vectors, kept beside the embeddings."""

    def __init__(self, index: Any) -> None:
        self._index = index
        index.nprobe = min(_PROBES, index.nlist)

    @staticmethod
    def open(path: Path, vectors: Tensor) -> "Approximate":
        """The index of these vectors; built the first time, and when it is no longer theirs."""
        import faiss

        made_from = {"vectors": _some(vectors)}
        if not _whole(path, made_from):
            with lock(path.with_suffix(".lock"), what=str(path)):
                if not _whole(path, made_from):
                    with atomic_path(path) as temporary:
                        faiss.write_index(_build(vectors), str(temporary))
                    write_kept(_beside(path), {"index": content_hash(path)}, made_from)
        return Approximate(faiss.read_index(str(path)))

    def search(self, query: Tensor, top: int) -> list[tuple[int, float]]:
        """(row, score), best first."""
        scores, rows = self._index.search(query[None].float().numpy(), top)
        found = zip(rows[0].tolist(), scores[0].tolist(), strict=True)
        return [(row, score) for row, score in found if row >= 0]


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _whole(path: Path, made_from: dict[str, str]) -> bool:
    try:
        return bool(read_kept(_beside(path), made_from)["index"] == content_hash(path))
    except (Damaged, OSError, ValueError, KeyError, TypeError):
        return False


def _some(vectors: Tensor) -> str:
    """A hash of a thousand vectors and their number: which vectors these are."""
    rows = np.linspace(0, len(vectors) - 1, min(1000, len(vectors))).astype(np.int64)
    sample = vectors[rows].float().numpy().tobytes()
    return hashlib.sha256(f"{tuple(vectors.shape)}".encode() + sample).hexdigest()


def _build(vectors: Tensor) -> Any:
    import faiss

    count, dimension = vectors.shape
    cells = max(1, min(int(4 * math.sqrt(count)), count // 40))
    quantizer = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFFlat(quantizer, dimension, cells, faiss.METRIC_INNER_PRODUCT)
    sample = np.random.default_rng(0).permutation(count)[: 64 * cells]
    index.train(vectors[np.sort(sample)].float().numpy())
    for start in range(0, count, 1 << 17):
        index.add(vectors[start : start + (1 << 17)].float().numpy())
    return index
