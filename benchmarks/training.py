"""Training: steps as CUDA graphs against plain ones, AOQ's second round, mining at COCO's size.

python benchmarks/training.py            two cores
python benchmarks/training.py --cuda     one GPU
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Row, best_time, print_rows, row

from simgrad.data import Sampler
from simgrad.data.base import Split
from simgrad.data.batches import Source
from simgrad.data.vocabulary import Vocabulary
from simgrad.models import Inputs, build
from simgrad.training.graph import GraphSteps, own_stream
from simgrad.training.mining import Candidates, mine
from simgrad.training.offline import Draw
from simgrad.training.recipe import Recipe
from simgrad.training.schedule import Moment
from simgrad.training.step import Step


class _Numbers:
    """Features made of random numbers."""

    header = "random"

    def __init__(self, images: int, shape: tuple[int, ...]) -> None:
        self.images, self.shape = images, shape

    def __len__(self) -> int:
        return self.images

    def rows(self, indices: Any) -> Any:
        random = np.random.default_rng(int(indices[0]))
        return random.standard_normal((len(indices), *self.shape), dtype=np.float32)


def _split(images: int, shape: tuple[int, ...]) -> Split:
    """Captions as long as people's: 8 to 16 words."""
    random = np.random.default_rng(0)
    words = [f"word{k}" for k in range(2000)]
    captions = [" ".join(random.choice(words, random.integers(8, 17))) for _ in range(5 * images)]
    owner = np.repeat(np.arange(images), 5)
    names = [str(k) for k in range(images)]
    return Split("numbers", "train", captions, owner, names, features=_Numbers(images, shape))


def _step(split: Split, model: str, recipe: Recipe, device: torch.device) -> tuple[Step, Source]:
    vocabulary = Vocabulary.build(split.captions, min_count=1)
    assert split.features is not None
    shape = split.features.shape
    kind: Any = "features" if len(shape) == 1 else "regions"
    built = build(model, Inputs(kind, shape, len(vocabulary))).to(device)
    built.train()
    return Step(built, recipe, device), Source(split, vocabulary, device=device, resident=True)


def _moment(objective: str) -> Moment:
    return Moment(1.0, 1.0, objective, False)


def _seconds_per_step(steps: Any, count: int, device: torch.device) -> float:
    """Mean over an epoch's first `count` steps, after a few to warm up."""
    start = 0.0
    for done, _ in enumerate(steps):
        if done == count // 4:
            _wait(device)
            start = time.perf_counter()
        if done == count:
            break
    _wait(device)
    return (time.perf_counter() - start) / (count - count // 4)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def step_rows(device: torch.device, quick: bool) -> list[Row]:
    """A step at batch 128: plain, and as a CUDA graph where there is a GPU."""
    rows = []
    count = 20 if quick else 120
    small = device.type == "cpu"
    models = [("vse++", (1280,), "vse++(dimension=256)" if small else "vse++")]
    if not small:
        models += [
            ("vsrn", (36, 2048), "vsrn"),
            ("vse-infinity", (36, 2048), "vse-infinity(text=bigru)"),
        ]
    for name, shape, spec in models:
        split = _split(3000, shape)
        recipe = Recipe(model=spec, objective="triplet-sh", positives="pairs")
        with own_stream(device):
            step, source = _step(split, spec, recipe, device)
            plan = Sampler("pairs", 128, drop_last=True).epoch(split, 0)[: count + 1]
            plain = _seconds_per_step(
                (step(batch, _moment("triplet-sh")) for batch in source.batches(plan)),
                count, device,
            )  # fmt: skip
            rows.append(row(f"{name} step", "batch 128, plain", seconds=plain))
            if device.type == "cuda":
                graphs = GraphSteps(step, source, recipe)
                list(graphs(plan, 0, lambda _: _moment("triplet-sh")))  # captures every length
                fast = _seconds_per_step(
                    graphs(plan, 0, lambda _: _moment("triplet-sh")), count, device
                )
                rows.append(
                    row(f"{name} step", "CUDA graph / plain", seconds=fast, ratio=plain / fast)
                )
    return rows


def round_rows(device: torch.device, quick: bool) -> list[Row]:
    """What a batch of AOQ's second round costs beside one of the first."""
    small = device.type == "cpu"
    spec = "vsrn(dimension=128)" if small else "vsrn"
    split = _split(1000 if small else 3000, (36, 128 if small else 2048))
    count = 4 if small or quick else 60
    times = {}
    for objective in ("triplet-sh", "off-tri", "off-quin", "adap-off-quin"):
        recipe = Recipe(objective=objective, positives="pairs", depth=300)
        recipe = recipe.replace(precision="float32" if small else "bf16")
        step, source = _step(split, spec, recipe, device)
        plan: Any = Sampler("pairs", 128, drop_last=True).epoch(split, 0)[: count + 1]
        if step.objectives[objective].needs_offline:
            random = np.random.default_rng(0)
            i2t = random.integers(0, split.num_captions, (split.num_images, 300), dtype=np.int32)
            t2i = random.integers(0, split.num_images, (split.num_captions, 60), dtype=np.int32)
            plan = Draw(split, Candidates(i2t, t2i, {}), recipe).epoch(plan, 0)
        steps = (step(batch, _moment(objective)) for batch in source.batches(plan))
        times[objective] = _seconds_per_step(steps, count, device)
    first = times.pop("triplet-sh")
    rows = [row("VSRN batch, round one", "batch 128", seconds=first)]
    for objective, seconds in times.items():
        cost = seconds / first
        rows.append(
            row(
                f"VSRN batch, {objective}", f"{cost:.2f} x round one", seconds=seconds,
                ratio=1.46 / cost, goal="below the paper's 1.46 x", met=cost < 1.46,
            )
        )  # fmt: skip
    return rows


def mining_rows(device: torch.device, quick: bool) -> list[Row]:
    """Hard negatives of a whole training set."""
    rows = []
    if device.type == "cuda":
        images, captions, depth, d = 113_287, 566_435, 300, 1024
        x, y = torch.randn(images, d, device=device), torch.randn(captions, d, device=device)
        owner = torch.arange(captions, device=device) % images
        mine(x[:2000], y[:10_000], owner[:10_000] % 2000, depth)
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        mine(x, y, owner, depth)
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() / 2**20
        text = f"{images:,} x {captions:,}, depth {depth}, both ways"
        rows.append(
            row("mining", text, seconds=seconds, peak_mib=peak, goal="under 4 s", met=seconds < 4)
        )
        return rows
    images, captions, depth, d = (1000, 5000, 50, 128) if quick else (6000, 30_000, 50, 512)
    x, y = torch.randn(images, d), torch.randn(captions, d)
    owner = torch.arange(captions) % images
    ours = best_time(lambda: mine(x, y, owner, depth), budget=6, most=3)
    text = f"{images:,} x {captions:,}, depth {depth}, both ways"
    rows.append(row("mining", text, seconds=ours))
    try:
        import faiss
    except ImportError:
        return rows

    def flat() -> None:
        for queries, items in ((x, y), (y, x)):
            index = faiss.IndexFlatIP(d)
            index.add(torch.nn.functional.normalize(items, dim=1).numpy())
            index.search(torch.nn.functional.normalize(queries, dim=1).numpy(), depth + 5)

    peer = best_time(flat, budget=6, most=3)
    goal = "at least as fast"
    rows.append(
        row(
            "mining",
            "faiss flat / us",
            seconds=peer,
            ratio=peer / ours,
            goal=goal,
            met=ours <= peer,
        )
    )
    return rows


def study_rows(device: torch.device, quick: bool) -> list[Row]:
    """A run from start to finish on the embedded world."""
    from simgrad.training.loop import train

    recipe = Recipe(
        data="scenes(features=global, train=1000, val=200, test=200)", epochs=2, lr=1e-3,
        model="vse++(dimension=256, word_dimension=64)", objective="nt-xent", device=str(device),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        train(recipe, Path(folder) / "run", quiet=True)
        seconds = time.perf_counter() - start
    return [row("a run", "1,000 scenes, 2 epochs, evaluation and all", seconds=seconds)]


def run(quick: bool = False, device: str = "cpu") -> list[Row]:
    """All of it on one device."""
    chosen = torch.device(device)
    makers = (step_rows, round_rows, mining_rows, study_rows)
    return [line for make in makers for line in make(chosen, quick)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    print_rows(run(chosen.quick, "cuda" if chosen.cuda else "cpu"))
