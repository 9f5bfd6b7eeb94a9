"""Hard negatives over a whole training set, both directions, exactly.

    python benchmarks/mining.py            # two cores: 6,000 x 30,000
    python benchmarks/mining.py --cuda     # a GPU: COCO's 113,287 x 566,435

Us, the bare product in blocks (half precision on a GPU, as ours), which serves both directions; and
what makes it for each direction: a plain blocked product with torch.topk, a full sort, and faiss.
The slow ones do one query in SHARE, after which their time is multiplied.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import Row, command, cuda_peak_above, goal, in_turn, installed, row, timed
from floor import floor
from torch import Tensor
from torch.nn.functional import normalize

from simgrad.mining import product
from simgrad.mining.mine import mine

SHARE = 20
COCO = (113_287, 566_435, 1024)
BLOCK = {"cpu": 2**24, "cuda": 2**30}  # similarities at a time


def products(
    queries: Tensor, items: Tensor, keep: Callable[[Tensor], object] | None, share: int = 1
) -> None:
    """Products in blocks; `keep` is what is done with each block."""
    rows = max(1, BLOCK[items.device.type] // len(items))
    block = items.new_empty((rows, len(items)))
    some = queries[: len(queries) // share]
    for start in range(0, len(some), rows):
        part = some[start : start + rows]
        scores = torch.mm(part, items.t(), out=block[: len(part)])
        if keep is not None:
            keep(scores)


def faiss_flat(x: Tensor, y: Tensor, depth: int) -> None:
    """A little more than the depth, since own pairs are among them."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    for queries, items in ((x, y), (y, x)):
        index = faiss.IndexFlatIP(x.shape[1])
        index.add(items.numpy())
        index.search(queries.numpy(), depth + 5)


def run(quick: bool = False) -> list[Row]:
    """Two cores."""
    images, captions, depth, d = (1000, 5000, 50, 128) if quick else (6000, 30_000, 50, 512)
    x, y = (normalize(torch.randn(n, d), dim=1) for n in (images, captions))
    owner = torch.arange(captions) % images
    setting = f"{images:,} x {captions:,} d={d}, depth {depth}, CPU"
    steps = {
        "ours": lambda: mine(x, y, owner, depth),
        "bare product": lambda: products(y, x, None),
    }
    if installed("faiss", "faiss flat"):
        steps["faiss flat"] = lambda: faiss_flat(x, y, depth)
    best = in_turn(steps, 3)
    ours = best.pop("ours")
    lowest = floor(2.0 * images * captions * d)
    rows = [row("mining", setting, seconds=ours, floor=lowest)]
    bare = best.pop("bare product")
    rows.append(row("bare product", setting, seconds=bare, ratio=bare / ours))
    for name, theirs in best.items():
        wanted = {} if quick else goal(">= 1x", theirs >= ours)
        rows.append(row(f"mining / {name}", setting, seconds=theirs, ratio=theirs / ours, **wanted))
    return rows + _slow(x, y, depth, setting, ours)


def run_cuda(quick: bool = False) -> list[Row]:
    """A GPU."""
    images, captions, d = (20_000, 100_000, 512) if quick else COCO
    depth = 300
    x, y, owner = _data(images, captions, d, "cuda")
    setting = f"{images:,} x {captions:,} d={d}, depth {depth}, CUDA"
    mine(x[:2000], y[:10_000], owner[:10_000] % 2000, depth)
    times: list[float] = []
    peak = cuda_peak_above(lambda: times.append(timed(lambda: mine(x, y, owner, depth), "cuda")))
    ours = min(times[0], timed(lambda: mine(x, y, owner, depth), "cuda"))
    lowest = floor(2.0 * images * captions * d, device="cuda", kind="float16")
    wanted = {} if quick else goal("<= 1.5 s", ours <= 1.5)
    rows = [row("mining", setting, seconds=ours, peak_mib=peak, floor=lowest, **wanted)]
    x, y = (normalize(e, dim=1).half() for e in (x, y))
    aligned = torch.nn.functional.pad(x, (0, 0, 0, -images % 64))  # else rows begin anywhere
    timed(lambda: products(y, aligned, None, SHARE), "cuda")
    bare = timed(lambda: products(y, aligned, None), "cuda")
    rows.append(row("bare product", setting, seconds=bare, ratio=bare / ours))
    return rows + _slow(x, y, depth, setting, ours)


def _data(images: int, captions: int, d: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    x, y = (torch.randn(n, d, device=device) for n in (images, captions))
    return x, y, torch.arange(captions, device=device) % images


def profile(device: str) -> str:
    """Where the time goes: each part by itself, the device waited for; on a GPU, its kernels."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    gpu = device == "cuda"
    images, captions, d = COCO if gpu else (6000, 30_000, 512)
    x, y, owner = _data(images, captions, d, device)

    def step() -> None:
        mine(x, y, owner, 300)

    step()
    lines = [f"{images:,} x {captions:,} d={d}, depth 300: {1e3 * timed(step, device):.0f} ms"]
    spent: dict[str, list[float]] = {}

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if gpu:
                torch.cuda.synchronize()
            begun = time.perf_counter()
            made = function(*given, **named)
            if gpu:
                torch.cuda.synchronize()
            spent.setdefault(name, []).append(time.perf_counter() - begun)
            return made

        return call

    kept = product._Columns
    with (
        patch.object(torch, "mm", watched("product", torch.mm)),
        patch.object(kept, "add", watched("image -> caption", kept.add)),
        patch.object(kept, "_merge", watched("  of it, merging", kept._merge)),
        patch.object(product, "largest", watched("caption -> image", product.largest)),
        patch.object(product, "score_again", watched("scored again", product.score_again)),
        patch.object(product._Whole, "put", watched("to the host", product._Whole.put)),
    ):
        whole = timed(step, device)
    lines += [f"{1e3 * sum(t):9.1f} ms {len(t):4} x  {name}" for name, t in spent.items()]
    lines.append(f"{1e3 * whole:9.1f} ms         in all, one after the other")
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with record(activities=kinds) as found:
        step()
    own = "self_device_time_total" if gpu else "self_cpu_time_total"  # microseconds
    events = [e for e in found.key_averages() if not gpu or str(e.device_type).endswith("CUDA")]
    events.sort(key=lambda event: -getattr(event, own))
    lines += [f"{getattr(e, own) / 1e3:9.1f} ms {e.count:4} x  {e.key[:90]}" for e in events[:25]]
    return "\n".join(lines) + "\n"


def _slow(x: Tensor, y: Tensor, depth: int, setting: str, ours: float) -> list[Row]:
    """What others write, on a share of the queries."""
    ways: dict[str, Callable[[Tensor], object]] = {
        "blocked product, topk": lambda scores: scores.topk(depth, dim=1),
        "blocked product, argsort": lambda scores: scores.argsort(dim=1, descending=True),
    }
    rows = []
    for name, keep in ways.items():
        # A sort needs several times the block it sorts.
        share = SHARE * 4 if "argsort" in name else SHARE
        theirs = sum(
            share * timed(lambda: products(queries, items, keep, share), x.device.type)  # noqa: B023
            for queries, items in ((x, y), (y, x))
        )
        rows.append(row(f"mining / {name}", setting, seconds=theirs, ratio=theirs / ours))
    return rows


if __name__ == "__main__":
    command(__doc__, run, run_cuda)
