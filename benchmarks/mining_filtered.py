"""Hard negatives of a very large set, with filters: 1,000,000 captions x 200,000 images.

    python benchmarks/mining_filtered.py --cuda     # a GPU
    python benchmarks/mining_filtered.py            # two cores: 5,000 x 1,000

Random vectors, d=512. Us with a relative margin, a floor and a window of ranks; beside us, in the
same run, faiss (on the GPU where its package can, else on the processor's cores) and a plain
blocked product with torch.topk, which filter nothing and give one direction at a time. Of the large
set the slow ones do one query in SHARE (faiss on a processor: one in 10 SHARE), after which their
time is multiplied.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import Row, command, cuda_peak_above, goal, installed, row, timed
from torch import Tensor
from torch.nn.functional import normalize

from mining import products
from simgrad.mining.mine import mine

SHARE = 20
FILTERS = {"relative_margin": 0.05, "min_score": -0.5, "range_min": 2}


def _data(images: int, captions: int, d: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    owner = torch.arange(captions, device=device) % images
    x = torch.randn(images, d, device=device)
    # Own pairs are a little similar, so that margins have something to cut at.
    y = x[owner] * 0.3 + torch.randn(captions, d, device=device)
    return x, y, owner


def _faiss(x: Tensor, y: Tensor, depth: int, gpu: bool) -> float:
    """Seconds of a search both ways; reading the items in is not counted."""
    import faiss

    share = SHARE if gpu else 10 * SHARE if x.is_cuda else 1
    seconds = 0.0
    for queries, items in ((x, y), (y, x)):
        index = faiss.IndexFlatIP(x.shape[1])
        if gpu:
            index = faiss.index_cpu_to_all_gpus(index)
        index.add(items.float().cpu().numpy())
        some = queries[: len(queries) // share].float().cpu().numpy()
        seconds += share * timed(lambda: index.search(some, depth + 5))  # noqa: B023
    return seconds


def _faiss_on_gpu() -> bool:
    import faiss

    return bool(getattr(faiss, "get_num_gpus", lambda: 0)() > 0)


def _rows(images: int, captions: int, d: int, depth: int, device: str, whole: bool) -> list[Row]:
    x, y, owner = _data(images, captions, d, device)
    setting = f"{images:,} x {captions:,} d={d}, depth {depth}, filters, {device.upper()}"
    part = owner < min(2000, images)
    mine(x[:2000], y[part][:10_000], owner[part][:10_000], depth, **FILTERS)  # warm up
    times: list[float] = []

    def ours() -> None:
        times.append(timed(lambda: mine(x, y, owner, depth, **FILTERS), device))

    peak = cuda_peak_above(ours) if device == "cuda" else ours()
    wanted = goal("< 20 GiB", peak < 20 * 1024) if whole and peak is not None else {}
    rows = [row("mining with filters", setting, seconds=times[0], peak_mib=peak, **wanted)]
    a, b = (normalize(e, dim=1) for e in (x, y))
    if device == "cuda":
        a, b = a.half(), b.half()
    share = SHARE if x.is_cuda else 1
    topk = sum(
        share * timed(lambda q=q, i=i: products(q, i, lambda s: s.topk(depth), share), device)
        for q, i in ((a, b), (b, a))
    )
    name = "mining with filters / blocked product, topk"
    rows.append(row(name, setting, seconds=topk, ratio=topk / times[0]))
    if installed("faiss", "faiss flat"):
        gpu = device == "cuda" and _faiss_on_gpu()
        theirs = _faiss(a, b, depth, gpu)
        where = " (processor)" if x.is_cuda and not gpu else ""
        name = f"mining with filters / faiss flat{where}"
        rows.append(row(name, setting, seconds=theirs, ratio=theirs / times[0]))
    return rows


def run(quick: bool = False) -> list[Row]:
    """Two cores."""
    return _rows(1000, 5000, 64 if quick else 512, 20, "cpu", whole=False)


def run_cuda(quick: bool = False) -> list[Row]:
    """A GPU."""
    images, captions = (20_000, 100_000) if quick else (200_000, 1_000_000)
    return _rows(images, captions, 512, 100, "cuda", whole=not quick)


if __name__ == "__main__":
    command(__doc__, run, run_cuda)
