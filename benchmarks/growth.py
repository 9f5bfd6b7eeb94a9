"""Growth: how time and memory grow with the batch, the set, the runs of a study and the processes.

    python benchmarks/growth.py            # two cores
    python benchmarks/growth.py --cuda     # a GPU

Each row is an exponent, fitted through the measured sizes on a log-log scale: n^1 is linear. All
pairs of a batch or a set are n^2 products, so n^2 is the least for their time; memory has no such
excuse, since pairs can be looked at block by block. Sizes begin where there is more than one block;
a fixed cost makes an exponent smaller, never larger. On the CPU each line of sizes runs in a
process of its own.
"""

import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import (
    Row,
    best_time,
    command,
    cuda_peak_above,
    goal,
    in_worker,
    peak_above,
    row,
    timed,
)

Step = Callable[[], Any]
OBJECTIVES = ("nt-xent", "triplet-sh", "smooth-ap", "goal")
PAIRS = "<= n^2.15 (all pairs: n^2 products)"
NARROW = "in the same memory a block of a larger batch has fewer rows: slower products"
LINEAR = "<= n^1.15"


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of a line through log(value) over log(size), by least squares."""
    x, y = ([math.log(max(v, 1e-9)) for v in series] for series in (sizes, values))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    up = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return up / sum((a - mean_x) ** 2 for a in x)


# -- what grows: a size to a step


def objective_step(name: str, batch: int, device: str) -> Step:
    """Forward and backward of a batch."""
    import simgrad

    generator = torch.Generator().manual_seed(0)
    images, texts = (
        torch.randn(batch, 128, generator=generator).to(device).requires_grad_() for _ in "it"
    )
    rule = simgrad.objective(name).to(device)

    def step() -> None:
        images.grad = texts.grad = None
        rule(images, texts).backward()

    return step


def evaluation_step(images: int, device: str) -> Step:
    """All metrics of n images and 5n captions."""
    import simgrad

    x, y, owner = _embeddings(images, device)
    return lambda: simgrad.evaluate(x, y, owner)


def mining_step(images: int, device: str) -> Step:
    """The fifty hardest negatives of each."""
    from simgrad.mining.mine import mine

    x, y, owner = _embeddings(images, device)
    return lambda: mine(x, y, owner, 50)


def _embeddings(images: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 128, generator=generator).to(device) for n in (images, 5 * images))
    unit = torch.nn.functional.normalize
    return unit(x), unit(y), torch.arange(5 * images) // 5


def step_of(what: str, size: int, device: str) -> Step:
    if what == "evaluation":
        return evaluation_step(size, device)
    if what == "mining":
        return mining_step(size, device)
    return objective_step(what, size, device)


# -- a process of its own


def worker(job: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds and MiB for each size."""
    found: dict[str, list[float]] = {"seconds": [], "peak_mib": []}
    if job["what"] == "study":
        return _study(job["sizes"])
    if job["what"] == "ranks":
        return _ranks(job)
    step_of(job["what"], 200, "cpu")()  # load it all
    for size in job["sizes"]:
        step = step_of(job["what"], size, "cpu")
        found["peak_mib"].append(peak_above(step))
        found["seconds"].append(best_time(step, 2.0, 3))
    return found


def _study(sizes: list[int]) -> dict[str, list[float]]:
    """A worker of a study with so many runs."""
    from simgrad.studies.plan import plan_from_dict
    from simgrad.studies.study import Study
    from simgrad.studies.worker import work

    torch.set_num_threads(1)
    found: dict[str, list[float]] = {"seconds": [], "peak_mib": []}
    for runs in [1, *sizes]:  # the first loads it all
        with tempfile.TemporaryDirectory() as folder:
            plan = {
                "title": "growth", "seeds": runs,
                "recipe": {
                    "data": "scenes(features=global, train=200, val=50, test=50)", "epochs": 2,
                    "model": "vse++(dimension=64, word_dimension=32)", "device": "cpu",
                },
                "grid": {"objective": ["nt-xent"]},
            }  # fmt: skip
            study = Study.create(plan_from_dict(plan, "plan"), folder)
            seconds: list[float] = []
            peak = peak_above(lambda: seconds.append(timed(lambda: work(study))))  # noqa: B023
            found["peak_mib"].append(peak)
            found["seconds"].append(seconds[0])
    return {name: values[1:] for name, values in found.items()}


def _ranks(job: dict[str, Any]) -> dict[str, list[float]]:
    """A training step that several processes share, one thread each; as process 0 sees it."""
    import torch.distributed as dist
    from synthetic import split

    from simgrad.runs.recipe import Recipe
    from training import Ours

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=job["meet"], rank=job["rank"], world_size=job["world"]
    )
    recipe = Recipe(objective="nt-xent", positives="pairs")
    ours = Ours("vse++(dimension=256)", split(600, (512,)), recipe, "cpu")
    seconds: list[float] = []
    peak = peak_above(lambda: seconds.append(ours.seconds(4)))
    dist.destroy_process_group()
    return {"seconds": seconds, "peak_mib": [peak]}


# -- rows


def _rows(
    what: str, against: str, sizes: list[int], found: dict[str, Any], setting: str, wanted: str
) -> list[Row]:
    """An exponent for time and one for memory."""
    slow = exponent(sizes, found["seconds"])
    # Below a MiB there is nothing to see but the allocator.
    large = exponent(sizes, [max(1.0, peak) for peak in found["peak_mib"]])
    bound = float(wanted.split("^")[1].split()[0])
    name = f"{what}, by {against}"
    return [
        row(f"time of {name}", setting, figure=slow, unit="n^{:.2f}", seconds=found["seconds"][-1],
            **goal(wanted, slow <= bound, NARROW if against == "batch" else "")),
        row(f"memory of {name}", setting, figure=large, unit="n^{:.2f}",
            peak_mib=found["peak_mib"][-1], **goal(LINEAR, large <= 1.15)),
    ]  # fmt: skip


def _in_worker(job: dict[str, Any]) -> dict[str, Any] | None:
    # Freed memory goes back at once, so that each size shows its own peak.
    settings = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    if "world" in job:
        settings["OMP_NUM_THREADS"] = "1"  # as torchrun sets it, for one process as for two
    return in_worker(__file__, job, 120, {**os.environ, **settings})


def _text(sizes: list[int], device: str) -> str:
    return f"n = {', '.join(f'{size:,}' for size in sizes)}, {device}"


def run(quick: bool = False) -> list[Row]:
    """On the CPU."""
    rows: list[Row] = []
    batches = [4096, 8192] if quick else [4096, 6144, 8192]
    images = [2000, 4000] if quick else [1500, 3000, 6000]
    lines = [(name, "batch", batches) for name in (OBJECTIVES[:1] if quick else OBJECTIVES)]
    lines += [("evaluation", "images", images)]
    lines += [] if quick else [("mining", "images", images)]
    for what, against, sizes in lines:
        found = _in_worker({"what": what, "sizes": sizes})
        if found is not None:
            rows += _rows(what, against, sizes, found, _text(sizes, "cpu"), PAIRS)
    runs = [1, 2] if quick else [1, 2, 4]
    found = _in_worker({"what": "study", "sizes": runs})
    if found is not None:
        rows += _rows("a study", "runs", runs, found, _text(runs, "one worker, cpu"), LINEAR)
    return rows if quick else [*rows, *rank_rows()]


def rank_rows() -> list[Row]:
    """One batch shared by one and by two processes."""
    import socket
    from concurrent.futures import ThreadPoolExecutor

    found = {}
    for world in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            meet = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        jobs = [{"what": "ranks", "world": world, "rank": k, "meet": meet} for k in range(world)]
        with ThreadPoolExecutor(world) as pool:
            answers = list(pool.map(_in_worker, jobs))
        if None in answers:
            return [row("a step shared by processes", "gloo, cpu", **goal("runs", False))]
        found[world] = answers[0]
    both = [found[1], found[2]]
    values = {key: [one[key][0] for one in both] for key in ("seconds", "peak_mib")}  # type: ignore[index]
    setting = "n = 1, 2 (gloo), batch 128, cpu"
    slope = exponent([1, 2], values["seconds"])
    share = exponent([1, 2], values["peak_mib"])
    return [
        row("time of a training step, by processes", setting, seconds=values["seconds"][1],
            figure=slope, unit="n^{:.2f}", **goal("< n^0 (n^-1: all of it is shared)", slope < 0)),
        row("memory of each process, by processes", setting, peak_mib=values["peak_mib"][1],
            figure=share, unit="n^{:.2f}", **goal("<= n^0.15", share <= 0.15)),
    ]  # fmt: skip


def run_cuda(quick: bool = False) -> list[Row]:
    """On a GPU; studies and processes have benchmarks of their own there."""
    rows: list[Row] = []
    batches = [4096, 8192, 16384] if quick else [8192, 16384, 32768]
    images = [2000, 4000, 8000] if quick else [5000, 10_000, 20_000]
    lines = [(name, "batch", batches) for name in OBJECTIVES]
    lines += [("evaluation", "images", images), ("mining", "images", images)]
    for what, against, sizes in lines:
        found: dict[str, list[float]] = {"seconds": [], "peak_mib": []}
        for size in sizes:
            step = step_of(what, size, "cuda")
            step()
            found["peak_mib"].append(cuda_peak_above(step))
            found["seconds"].append(min(timed(step, "cuda") for _ in range(3)))
        rows += _rows(what, against, sizes, found, _text(sizes, "cuda"), PAIRS)
    return rows


if __name__ == "__main__":
    command(__doc__, run, run_cuda, worker)
