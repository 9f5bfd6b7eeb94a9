"""FAISS for many vectors: an index reads a part of them, and exact products order what it finds.

An index is described by a factory string of FAISS (`IVF4096,Flat`, `HNSW32`, `IVF4096,SQ8`). It is
built once, kept beside the embeddings and read by memory map. How much of the exact answer it finds
is measured when it is built: how many cells (nprobe) or nodes (efSearch) a query visits is doubled
until it finds 95 % of the ten best, and what was reached is kept and shown.
"""

import hashlib
import math
import os
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.derived import Damaged, content_hash, read_kept, write_kept
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, lock
from simgrad.core.threads import memory
from simgrad.search.exact import Exact, Ranked, best, product

AUTO, EXACT = "auto", "exact"
LARGE = 1_000_000  # vectors from which an index is the default
_SHARE = 0.25  # of the memory that an index may take
_TOP, _QUERIES = 10, 200  # what recall is measured on
_ENOUGH = 0.95
_KNOBS = {"nprobe": (8, 1024), "efSearch": (32, 1024)}  # what may be doubled, from and to
_AGAIN = 4  # times as many rows as are wanted get an exact score
_PIECE = 1 << 17  # vectors added at a time


def available() -> bool:
    """Whether the extra `faiss` is installed."""
    return find_spec("faiss") is not None


def default_index(count: int, dimension: int, room: float | None = None) -> str:
    """The factory string for so many vectors, in a quarter of the memory (or `room` bytes); below
    a million, or without FAISS, `exact`."""
    if count < LARGE or not available():
        return EXACT
    room = _SHARE * memory() if room is None else room
    cells = 1 << round(math.log2(4 * math.sqrt(count)))
    for codes, size in (("Flat", 4), ("SQfp16", 2), ("SQ8", 1)):
        if count * (size * dimension + 8) <= room:
            return f"IVF{cells},{codes}"
    return f"IVF{cells},PQ{_parts(dimension)}x8"


def _parts(dimension: int) -> int:
    """Bytes of a product-quantised vector: of four numbers each, or what divides it."""
    return next(n for n in range(max(1, dimension // 4), 0, -1) if dimension % n == 0)


@dataclass(frozen=True)
class Built:
    """What is known of an index since it was built."""

    factory: str
    knob: str  # nprobe, efSearch or none
    value: int
    recall: float  # share of the exact ten best that it finds
    queries: int
    seconds: float  # that building took
    bytes: int  # on disk

    def __str__(self) -> str:
        setting = f" with {self.knob}={self.value}" if self.knob else ""
        return (
            f"approximate: FAISS {self.factory}{setting} finds {100 * self.recall:.1f}% of the "
            f"{_TOP} best of exact search ({self.queries} queries, measured when it was built)"
        )


class Approximate:
    """An index over unit vectors, kept beside them."""

    def __init__(self, index: Any, vectors: Tensor, built: Built) -> None:
        self._index, self._vectors, self.built = index, vectors, built
        if built.knob:
            _turn(index, built.knob, built.value)

    @staticmethod
    def open(
        path: Path, vectors: Tensor, factory: str, queries: Tensor | None = None
    ) -> "Approximate":
        """The index of these vectors; built the first time, and when it is no longer theirs.

        `queries`: vectors of the kind that will be asked; without them, its own are asked.
        """
        if not available():
            raise InputError(f"`index={factory}`: needs `pip install 'simgrad[faiss]'`.")
        made_from = {"vectors": _some(vectors), "factory": factory}
        built = _whole(path, made_from)
        if built is None:
            with lock(path.with_suffix(".lock"), what=str(path)):
                built = _whole(path, made_from)
                if built is None:
                    built = _write(path, vectors, factory, queries, made_from)
        return Approximate(_read(path), vectors, built)

    def search(self, query: Tensor, top: int) -> Ranked:
        """(row, score), best first; scores are exact."""
        query, wanted = query.float(), min(_AGAIN * max(top, _TOP), len(self._vectors))
        found = self._index.search(query[None].numpy(), wanted)[1][0]
        rows = torch.from_numpy(np.sort(found[found >= 0]))
        return [(int(rows[i]), s) for i, s in best(product(self._vectors[rows], query), top)]


def _write(
    path: Path, vectors: Tensor, factory: str, queries: Tensor | None, made_from: dict[str, str]
) -> Built:
    import faiss

    begun = perf_counter()
    index = build(vectors, factory)
    with atomic_path(path) as temporary:
        faiss.write_index(index, str(temporary))
    seconds, size = perf_counter() - begun, os.path.getsize(path)
    knob, value, recall, asked = _measured(index, vectors, factory, queries)
    built = Built(factory, knob, value, recall, asked, seconds, size)
    write_kept(_beside(path), {"index": content_hash(path), "built": asdict(built)}, made_from)
    return built


def build(vectors: Tensor, factory: str) -> Any:
    """A trained and filled index."""
    import faiss

    count, dimension = vectors.shape
    try:
        index = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1][-120:]
        raise InputError(
            f"`index={factory}`: not a factory string of FAISS for vectors of {dimension} numbers "
            f"({reason}). Try IVF4096,Flat, IVF4096,SQ8 or HNSW32; or auto, or exact."
        ) from None
    cells = _cells(index)
    if count < cells:
        raise InputError(
            f"`index={factory}`: {cells:,} cells for {count:,} vectors; take at most "
            f"{max(1, count // 40):,}."
        )
    index.verbose = False
    if not index.is_trained:
        sample = np.random.default_rng(0).permutation(count)[: max(64 * cells, 1 << 16)]
        try:
            index.train(vectors[np.sort(sample)].float().numpy())
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1][-120:]
            raise InputError(
                f"`index={factory}`: cannot learn from {count:,} vectors ({reason})."
            ) from None
    for start in range(0, count, _PIECE):
        index.add(vectors[start : start + _PIECE].float().numpy())
    return index


def _cells(index: Any) -> int:
    """Cells of the inverted file within an index; 1 where there is none."""
    import faiss

    try:
        return int(faiss.extract_index_ivf(index).nlist)
    except RuntimeError:
        return 1


def _measured(
    index: Any, vectors: Tensor, factory: str, queries: Tensor | None
) -> tuple[str, int, float, int]:
    """The knob, its value, the share of the ten best that is found, and by how many queries."""
    rows, asked = _asked(vectors, queries)
    wanted = _ten_best(Exact(vectors, halves=False), asked, rows)
    knob = next((name for name in _KNOBS if _turn(index, name, _KNOBS[name][0])), "")
    value, most = _KNOBS.get(knob, (0, 0))
    most = min(most, _cells(index)) if knob == "nprobe" else most
    value = min(value, most)
    while True:
        told = Built(factory, knob, value, 0.0, 0, 0.0, 0)
        found = _ten_best(Approximate(index, vectors, told), asked, rows)
        hits = sum(len(ours & theirs) for ours, theirs in zip(found, wanted, strict=True))
        recall = hits / max(1, sum(map(len, wanted)))
        if recall >= _ENOUGH or value >= most:
            return knob, value, recall, len(asked)
        value = min(2 * value, most)


def _asked(vectors: Tensor, queries: Tensor | None) -> tuple[list[int], Tensor]:
    """Some queries; or some of the vectors, with their rows: they must not find themselves."""
    pool = vectors if queries is None else queries
    rows = np.linspace(0, len(pool) - 1, min(_QUERIES, len(pool))).astype(np.int64)
    return (rows.tolist() if queries is None else [-1] * len(rows)), pool[rows].float().cpu()


def _ten_best(index: Exact | Approximate, asked: Tensor, rows: list[int]) -> list[set[int]]:
    found = []
    for query, own in zip(asked, rows, strict=True):
        ranked = index.search(query, _TOP + (own >= 0))
        found.append(set([row for row, _ in ranked if row != own][:_TOP]))
    return found


def _turn(index: Any, knob: str, value: int) -> bool:
    """Set a knob of an index, where it has it."""
    import faiss

    try:
        faiss.ParameterSpace().set_index_parameter(index, knob, value)
    except RuntimeError:
        return False
    return True


def _read(path: Path) -> Any:
    """Memory-mapped: what a query does not visit need not be in memory."""
    import faiss

    flags = faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY
    return faiss.read_index(str(path), flags)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _whole(path: Path, made_from: dict[str, str]) -> Built | None:
    try:
        kept = read_kept(_beside(path), made_from)
        return Built(**kept["built"]) if kept["index"] == content_hash(path) else None
    except (Damaged, InputError, OSError, ValueError, KeyError, TypeError):
        return None


def _some(vectors: Tensor) -> str:
    """A hash of a thousand vectors and their number: which vectors these are."""
    rows = np.linspace(0, len(vectors) - 1, min(1000, len(vectors))).astype(np.int64)
    sample = vectors[rows].float().numpy().tobytes()
    return hashlib.sha256(f"{tuple(vectors.shape)}".encode() + sample).hexdigest()
