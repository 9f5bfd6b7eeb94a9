"""The lab page under load, and search among many items.

A server of its own on loopback, 64 clients that ask one thing after another: sentences, uploads,
pictures, the bench, progress. Times are seen from the clients, which share the machine.
"""

import asyncio
import io
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from common import Row, goal, installed, row, timed
from floor import bytes_per_second

from simgrad.data import open_dataset
from simgrad.runs.recipe import Recipe
from simgrad.search.exact import Exact
from simgrad.training import train

CLIENTS = 64
DATA = "scenes(train=600, val=100, test=100, features=global)"
START = "from simgrad.cli.program import main; main()"


def run(quick: bool = False) -> list[Row]:
    """Rows of the table."""
    return [*_search(quick), *_load(3.0 if quick else 15.0)]


def _search(quick: bool) -> list[Row]:
    """One query, after loading; one thread, as the server works."""
    rows = []
    lowest = bytes_per_second()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for items in (100_000,) if quick else (100_000, 500_000):
            vectors = torch.nn.functional.normalize(torch.randn(items, 1024), dim=1)
            rows += _beside(vectors, 2 * vectors.numel() / lowest)
    finally:
        torch.set_num_threads(before)
    return rows


def _beside(vectors: torch.Tensor, floor: float) -> list[Row]:
    """Us, the plain product, and faiss; the floor is to read every vector in half precision."""
    setting = f"{len(vectors):,} items x 1024, one thread"
    index = Exact(vectors)
    ours = _median(lambda query: index.search(query, 10), vectors)
    wanted = goal("< 50 ms", ours < 0.05) if len(vectors) == 100_000 else {}
    peers: dict[str, Callable[[torch.Tensor], Any]] = {
        "plain product, topk": lambda query: (vectors @ query).topk(10),
    }
    if installed("faiss", "exact search / faiss flat"):
        import faiss

        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors.numpy())
        peers["faiss flat"] = lambda query: flat.search(query[None].numpy(), 10)
    rows = [row("exact search", setting, seconds=ours, floor=floor, **wanted)]
    for name, search in peers.items():
        theirs = _median(search, vectors)
        ratio = theirs / ours
        rows.append(row(f"exact search / {name}", setting, seconds=theirs, ratio=ratio))
    return rows


def _median(search: Callable[[torch.Tensor], Any], vectors: torch.Tensor) -> float:
    times = sorted(timed(lambda query=query: search(query)) for query in vectors[:10])  # type: ignore[misc]
    return times[len(times) // 2]


def _load(seconds: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as (address, server):
        picture = io.BytesIO()
        split = open_dataset(DATA).split("test")
        assert split.pictures is not None
        split.pictures.picture(3).save(picture, "PNG")
        captions = [split.captions[i] for i in range(0, 500, 7)]
        before = _memory(server)
        times, failed = asyncio.run(_clients(address, seconds, captions, picture.getvalue()))
        after = _memory(server)
    rows = []
    for kind, found in sorted(times.items()):
        found.sort()
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            at = found[int(share * (len(found) - 1))]
            rows.append(row(f"serve {kind} {name}", f"{CLIENTS} clients", seconds=at))
    total = sum(len(found) for found in times.values())
    if failed:
        print(f"serve: failures {dict(failed)}", file=sys.stderr)
    rows.append(
        row(
            "serve, each request",
            f"{CLIENTS} clients",
            seconds=seconds / max(1, total),
            peak_mib=after,
            **goal("no failure, < 500 MiB more", not failed and after < before + 500),
        )
    )
    return rows


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, int]]:
    model = "vse++(dimension=128, word_dimension=64)"
    recipe = Recipe(data=DATA, model=model, objective="nt-xent", epochs=2, lr=1e-3)
    train(recipe, folder / "run", quiet=True)
    command = [sys.executable, "-c", START, "serve", str(folder / "run"), "--port", "0"]
    command += ["--token", "none"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stderr is not None
        line = child.stderr.readline()
        if "http://" not in line:
            raise RuntimeError(f"the server did not start: {line}{child.stderr.read()}")
        yield line.split()[-1].rstrip("/"), child.pid
    finally:
        child.terminate()
        child.wait(20)


def _memory(server: int) -> float:
    """MiB of the server and its decoders, from /proc."""
    program = Path(f"/proc/{server}/cmdline").read_bytes()
    total = 0
    for member in _family(server):
        # A decoder that is just being started still is the server's program, and shows its memory.
        if member != str(server) and Path(f"/proc/{member}/cmdline").read_bytes() == program:
            continue
        lines = Path(f"/proc/{member}/status").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return total / 1024


def _family(server: int) -> list[str]:
    """A process and its children."""
    family = [str(server)]
    for file in Path(f"/proc/{server}/task").glob("*/children"):
        family += file.read_text().split()
    return family


async def _clients(
    address: str, seconds: float, captions: list[str], picture: bytes
) -> tuple[dict[str, list[float]], Counter[str]]:
    import httpx

    times: dict[str, list[float]] = {}
    failed: Counter[str] = Counter()
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:

        async def ask(kind: str, chance: random.Random) -> httpx.Response:
            if kind == "sentence":
                return await client.get("/api/search", params={"q": chance.choice(captions)})
            if kind == "upload":
                return await client.post("/api/search/picture", files={"picture": picture})
            if kind == "bench":
                asked = {"parameters": {"tau": chance.uniform(0.02, 0.4)}, "run": "run"}
                return await client.post("/api/bench", json=asked)
            if kind == "picture":
                return await client.get(f"/pictures/run/test/{chance.randrange(100)}")
            return await client.get("/api/overview")

        async def visitor(number: int, until: float) -> None:
            chance = random.Random(number)
            kinds: list[Any] = ["sentence"] * 4 + ["picture"] * 4 + ["overview", "upload", "bench"]
            while time.perf_counter() < until:
                kind = chance.choice(kinds)
                start = time.perf_counter()
                try:
                    status = (await ask(kind, chance)).status_code
                except httpx.HTTPError as error:
                    status = type(error).__name__
                if status == 200:
                    times.setdefault(kind, []).append(time.perf_counter() - start)
                else:
                    failed[str(status)] += 1

        for kind in ("sentence", "upload", "bench", "picture", "overview"):
            await ask(kind, random.Random(0))  # loading is not what is measured
        until = time.perf_counter() + seconds
        await asyncio.gather(*(visitor(k, until) for k in range(CLIENTS)))
    return times, failed
