"""Search among many vectors: three indexes of FAISS beside exact search.

    python benchmarks/indexes.py --vectors 2000000 --dimension 256

Each is built, kept, and opened again by memory map, in processes of their own: seconds and peak
memory of building, size on disk, recall of the ten best, the median time of one query on one
thread, and the memory of a process that has opened it and answered. Vectors lie around centres, as
embeddings do; queries are other draws. Of vectors without any structure, no index finds much.
"""

import argparse
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import MIB, Row, _status, in_worker, installed, row

from simgrad.search.approximate import EXACT, Approximate
from simgrad.search.exact import Exact

QUERIES, PIECE, EACH = 200, 1 << 16, 500  # EACH: vectors around a centre
INNER = 32  # dimensions in which vectors differ from their centre


def run(quick: bool = False) -> list[Row]:
    """Rows of the table, at a size that takes a minute."""
    if not installed("faiss", "indexes"):
        return []
    count, dimension = (10_000, 64) if quick else (200_000, 256)
    rows = []
    for told in measure(count, dimension, indexes(count)):
        setting = f"{count:,} x {dimension}"
        size, found = told["index_mib"], told["recall"]
        rows += [
            row(f"one query, {told['index']}", setting, seconds=told["query_s"]),
            row(f"building {told['index']}", setting, seconds=told["build_s"], peak_mib=size),
            row(f"recall@10, {told['index']}", setting, figure=100 * found, unit="{:.1f} %"),
        ]
    return rows


def indexes(count: int) -> list[str]:
    """Exact search; the default where memory is plenty, and where it is little; and a graph."""
    cells = max(1, min(1 << round(math.log2(4 * math.sqrt(count))), count // 64))
    return [EXACT, f"IVF{cells},Flat", f"IVF{cells},SQ8", "HNSW32"]


def measure(count: int, dimension: int, names: list[str]) -> list[dict[str, Any]]:
    """Each index, built in one process and opened in another."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder) / "vectors.npy", count, dimension)
        for name in names:
            job = {"folder": folder, "index": name}
            built = in_worker(__file__, {**job, "build": True}, timeout=7200)
            one = os.environ | {"OMP_NUM_THREADS": "1"}
            asked = in_worker(__file__, job, timeout=3600, environment=one)
            if built is not None and asked is not None:
                found.append({"index": name, **built, **asked})
                print(json.dumps(found[-1]), flush=True)
    return found


def draw(path: Path, count: int, dimension: int) -> None:
    """Unit vectors around centres, a piece at a time; the last QUERIES are the questions."""
    generator = np.random.default_rng(0)
    total = count + QUERIES
    array = np.lib.format.open_memmap(path, "w+", np.float32, (total, dimension))
    centres = generator.standard_normal((max(1, total // EACH), dimension), dtype=np.float32)
    spread = generator.standard_normal((INNER, dimension), dtype=np.float32) / INNER**0.5
    for start in range(0, total, PIECE):
        piece = min(PIECE, total - start)
        inner = generator.standard_normal((piece, INNER), dtype=np.float32)
        made = centres[generator.integers(len(centres), size=piece)] + inner @ spread
        array[start : start + piece] = made / np.linalg.norm(made, axis=1, keepdims=True)
    array.flush()


def worker(job: dict[str, Any]) -> dict[str, Any]:
    """Build one index; or open it, and ask."""
    array = np.load(Path(job["folder"]) / "vectors.npy", mmap_mode="c")
    vectors, queries = (torch.from_numpy(part) for part in np.split(array, [-QUERIES]))
    before, begun, name = _status("VmRSS"), time.perf_counter(), job["index"]
    path = Path(job["folder"]) / f"{name}.faiss"
    index: Exact | Approximate = (
        Exact(vectors) if name == EXACT else Approximate.open(path, vectors, name, queries)
    )
    if job.get("build"):
        seconds = time.perf_counter() - begun
        known = index.built if isinstance(index, Approximate) else None
        return {
            "build_s": seconds if known is None else known.seconds,
            "all_s": seconds,  # with what is measured
            "build_peak_mib": _status("VmHWM") - before,
            "index_mib": 0.0 if known is None else known.bytes / MIB,
            "recall": 1.0 if known is None else known.recall,
            "setting": "" if known is None else f"{known.knob}={known.value}",
        }
    torch.set_num_threads(1)
    times = []
    for query in queries:
        started = time.perf_counter()
        index.search(query, 10)
        times.append(time.perf_counter() - started)
    anonymous = _status("RssAnon")
    return {"query_s": sorted(times)[len(times) // 2], "open_mib": anonymous}


def table(found: list[dict[str, Any]]) -> str:
    """As a page shows it."""
    lines = [
        "| index | build | memory for it | on disk | recall@10 | one query | memory to search |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        name = f"`{one['index']}`" + (f", {one['setting']}" if one["setting"] else "")
        lines.append(
            f"| {name} | {one['build_s']:,.0f} s | {one['build_peak_mib'] / 1024:.1f} GiB "
            f"| {one['index_mib'] / 1024:.2f} GiB | {100 * one['recall']:.1f} % "
            f"| {1000 * one['query_s']:.1f} ms | {one['open_mib'] / 1024:.2f} GiB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure at the size that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=200_000)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument("--indexes", nargs="*", help="factory strings, or exact")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(json.loads(options.worker))))
        return
    names = options.indexes or indexes(options.vectors)
    print(table(measure(options.vectors, options.dimension, names)))


if __name__ == "__main__":
    main()
