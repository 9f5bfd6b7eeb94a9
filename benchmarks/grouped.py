"""Runs that train together: a step of VSE++ in P processes of G models each, on one GPU.

    python benchmarks/grouped.py --cuda                    # all layouts, about 90 seconds
    python benchmarks/grouped.py --cuda --layouts 4x8 16x1 --objectives nt-xent
    python benchmarks/grouped.py --profile 8               # kernels of a step of 8 models together
    python benchmarks/grouped.py --profile 1               # and of a captured step alone

Batch 128, 1,280 features, 1,024 wide, 8,000 words, bf16, on made-up data with captions as long as
those of Flickr8k. Objectives come in turn; each run weighs its own batch, as in a study. Processes
share the GPU as a study's workers do; 16x1 is what a study does where runs cannot train together.
Each run calls for its steps as the training loop does. A run that fails ends the benchmark.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import Row, print_rows, row
from synthetic import split as make_split

from simgrad.data import Sampler
from simgrad.runs.recipe import Recipe
from simgrad.studies.engine import shared_gpu
from simgrad.training.graph import own_stream
from simgrad.training.grouped import GroupedRun, RunGroup
from simgrad.training.optimizing import Moment
from training import BATCH, Ours

DEVICE = "cuda"
MODEL = "vse++(dimension=1024, word_dimension=300)"
OBJECTIVES = ("triplet-sh", "nt-xent", "triplet", "siglip", "goal(triplet=cir, pair=sig-ms)")
WORDS = [f"word{k}" for k in range(8000)]
LAYOUTS = ("1x8", "1x16", "2x16", "4x8", "8x4", "16x1")  # processes x models
_WARM = 120  # steps: three epochs, in which all lengths are captured
_TIMED = 4.0  # seconds
_KINDS = {  # of kernels, by what their names hold
    "products": ("nvjet", "gemm", "cutlass", "splitK"),
    "GRU cells": ("RNN", "GRU", "cell"),
    "Adam": ("adam", "Adam"),
    "word vectors": ("embedding", "radix", "Radix", "Sort", "scan"),
    "norms and sums": ("reduce",),
    "copies and casts": ("copy", "Memcpy", "Memset", "direct_copy", "CatArray", "fill"),
    "gathers": ("index", "gather"),
}


def _split() -> Any:
    return make_split(1000, (1280,), WORDS, uneven=True)


def _recipe(objective: str = "nt-xent") -> Recipe:
    return Recipe(objective=objective, positives="images", precision="bf16", batch=BATCH)


class Together:
    """Several models of one group, or one alone."""

    def __init__(
        self, count: int, split: Any, first: int = 0, objectives: Sequence[str] = OBJECTIVES
    ) -> None:
        self.group, self.count = RunGroup(count), count
        self.joined = threading.Barrier(count)
        self.runs = [
            Ours(MODEL, split, _recipe(objectives[(first + k) % len(objectives)]), DEVICE)
            for k in range(count)
        ]
        self.device, self.source = self.runs[0].device, self.runs[0].source
        self.plan = Sampler("pairs", BATCH, drop_last=True).epoch(split, 0)

    def work(self, go: Callable[[], float], look: Callable[[int], None] | None = None) -> float:
        """Steps a second of all, until the time that `go` returns when all are warm.

        `look` is told the number of each step by one of the runs.
        """
        until, begun, done = [0.0], [0.0], [0] * self.count
        errors: list[BaseException] = []

        def ready() -> None:
            torch.cuda.synchronize()
            until[0], begun[0] = go(), time.time()

        all_warm = threading.Barrier(self.count, ready)

        def run(place: int) -> None:
            try:
                with own_stream(self.device), closing(self._steps(place)) as steps:
                    for number, _ in enumerate(steps, 1):
                        if number == _WARM:
                            all_warm.wait()
                        if look is not None and place == 0:
                            look(number)
                        if number > _WARM:
                            done[place] += 1
                            if time.time() > until[0]:
                                return
            except BaseException as error:
                errors.append(error)
                all_warm.abort()
                self.joined.abort()

        threads = [threading.Thread(target=run, args=(place,)) for place in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        torch.cuda.synchronize()
        return sum(done) / (time.time() - begun[0])

    def _steps(self, place: int) -> Generator[None]:
        """Steps without an end."""
        ours = self.runs[place]
        total = torch.zeros((), device=self.device, dtype=torch.float64)
        if self.count == 1:
            while True:
                for loss in ours.steps(len(self.plan)):
                    total += loss
                    yield
        now = Moment(1.0, 1.0, ours.recipe.objective, False)
        member = GroupedRun(self.group, ours.step, self.source)
        self.group.join(member)
        try:
            self.joined.wait()
            while True:
                for batch in member.batches(self.plan, 0):
                    ours.step.optimizer.set_rates(now)
                    total += member(batch, ours.step.objectives[now.objective])
                    yield
        finally:
            self.group.leave(member)  # else the others would wait for it


def _worker(number: int, objectives: Sequence[str]) -> None:
    """One of several processes: told a layout, says when it is ready, is told when to end."""
    split = _split()
    print("here", flush=True)

    def go() -> float:
        print("ready", flush=True)
        return float(sys.stdin.readline())

    for line in sys.stdin:
        together = Together(int(line), split, number, objectives)
        rate = together.work(go)
        del together
        gc.collect()
        torch.cuda.empty_cache()
        print(json.dumps(rate), flush=True)


class _Crew:
    """Processes that share the GPU."""

    def __init__(self, count: int, objectives: Sequence[str], environment: dict[str, str]) -> None:
        pipe, words = subprocess.PIPE, [sys.executable, __file__, "--objectives", *objectives]
        self.running = [
            subprocess.Popen(
                [*words, "--worker", str(k)], stdin=pipe, stdout=pipe, text=True, env=environment
            )
            for k in range(count)
        ]
        self.hear(count)

    def tell(self, count: int, line: str) -> None:
        for one in self.running[:count]:
            assert one.stdin is not None
            one.stdin.write(line + "\n")
            one.stdin.flush()

    def hear(self, count: int) -> list[str]:
        heard = [one.stdout.readline().strip() for one in self.running[:count] if one.stdout]
        if not all(heard):
            raise SystemExit("a process failed: see above")
        return heard

    def rate(self, processes: int, models: int) -> float:
        """Steps a second of all models."""
        self.tell(processes, str(models))
        self.hear(processes)
        self.tell(processes, str(time.time() + _TIMED))
        return sum(map(float, self.hear(processes)))

    def end(self) -> None:
        for one in self.running:
            one.kill()
            one.wait()


def run_cuda(layouts: Sequence[str] = LAYOUTS, objectives: Sequence[str] = OBJECTIVES) -> list[Row]:
    """A step of one model."""
    setting = f"VSE++ 1024, batch {BATCH}, bf16, cuda"
    rates: dict[str, float] = {}
    pairs = [tuple(map(int, layout.split("x"))) for layout in layouts]
    with shared_gpu(True) as service:
        if not service:
            print("WITHOUT the multi-process service", file=sys.stderr)
        most = max(processes for processes, _ in pairs)
        crew = _Crew(most, objectives, {**os.environ, **service})
        try:
            for layout, (processes, models) in zip(layouts, pairs, strict=True):
                rates[layout] = rate = crew.rate(processes, models)
                print(f"{layout}: {1e3 / rate:.3f} ms a model-step", file=sys.stderr, flush=True)
        finally:
            crew.end()
    today = rates.get("16x1")
    return [
        row(layout, setting, seconds=1 / rate, ratio=rate / today if today else None)
        for layout, rate in rates.items()
    ]


class _Kernels:
    """What runs on the GPU from now on."""

    def __init__(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        self.profile = profile(activities=[ProfilerActivity.CUDA])
        self.profile.start()
        self.begun = time.perf_counter()

    def end(self, count: int) -> dict[str, Any]:
        """Milliseconds and launches of one of so many steps, by kind of kernel and by name."""
        wall = time.perf_counter() - self.begun
        self.profile.stop()
        kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        names = []
        for event in self.profile.key_averages():
            ms, calls = event.self_device_time_total / 1e3 / count, event.count / count
            if not ms:
                continue
            known = (k for k, parts in _KINDS.items() if any(p in event.key for p in parts))
            both = kinds[next(known, "rest")]
            both[0], both[1] = both[0] + ms, both[1] + calls
            names.append((ms, calls, event.key[:90]))
        return {"wall": 1e3 * wall / count, "kinds": dict(kinds), "names": sorted(names)[:-19:-1]}


def _print_kernels(title: str, found: dict[str, Any]) -> None:
    total = sum(ms for ms, _ in found["kinds"].values())
    calls = sum(calls for _, calls in found["kinds"].values())
    share = 100 * total / found["wall"]
    print(
        f"{title}: {found['wall']:.3f} ms a step (profiled), kernels {total:.3f} ms in {calls:.0f} "
        f"launches: the GPU works {share:.0f} % of the time"
    )
    for kind, (ms, count) in sorted(found["kinds"].items(), key=lambda one: -one[1][0]):
        print(f"  {ms:7.3f} ms {count:6.1f}  {kind}")
    for ms, count, name in found["names"]:
        print(f"      {ms:7.3f} ms {count:6.1f}  {name}")


def _profile(models: int, objectives: Sequence[str]) -> None:
    first, count = _WARM + 10, 30
    made: list[_Kernels] = []

    def look(number: int) -> None:
        if number in (first, first + count):
            torch.cuda.synchronize()
        if number == first:
            made.append(_Kernels())
        if number == first + count:
            _print_kernels(f"{models} together", made[0].end(count))

    rate = Together(models, _split(), 0, objectives).work(lambda: time.time() + 3, look)
    print(f"{1e3 / rate:.3f} ms a model-step, a part of them profiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, metavar="PxG")
    parser.add_argument("--objectives", nargs="+", default=OBJECTIVES, help="in turn")
    parser.add_argument("--profile", type=int, metavar="G")
    parser.add_argument("--worker", type=int)
    options = parser.parse_args()
    if options.worker is not None:
        _worker(options.worker, options.objectives)
    elif options.profile:
        _profile(options.profile, options.objectives)
    elif options.cuda:
        print_rows(run_cuda(options.layouts, options.objectives))


if __name__ == "__main__":
    main()
