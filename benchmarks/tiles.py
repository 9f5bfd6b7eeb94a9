"""Which shape of tile suits each fused kernel: measured on a GPU, at B=32,768 and d=512.

    python benchmarks/tiles.py --seconds 90 --write

Every kernel is compiled in each of a few shapes, by several processes at once, and timed on one
block of a batch; what it gives must equal what the first shape gives. The fastest shapes are
printed and, with --write, put into `simgrad/objectives/tiles.py`. A shape that does not compile,
does not fit or does not give the same is told and left out. Time is up after so many seconds: what
is measured until then counts.
"""

import argparse
import contextlib
import os
import re
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgrad.objectives import Positives, embeddings, fused, objective, tiles
from simgrad.objectives.rows import Work
from simgrad.objectives.tiles import SHAPES, Shape

BATCH, WIDTH = 32768, 512
KINDS = {"bf16": torch.bfloat16, "tf32": torch.float32}
# Whose kernel it is, and what its queries are given: any numbers, as long as some are near.
RULES: dict[str, tuple[str, tuple[float, ...]]] = {
    "softmax-summary": ("nt-xent", ()),
    "softmax-keep": ("nt-xent", ()),
    "softmax": ("nt-xent", (11.0,)),
    "hinge": ("triplet", (0.05,)),
    "sigmoid": ("siglip", ()),
    "rank-summary": ("smooth-ap", (15.0,)),
    "rank-keep": ("smooth-ap", (15.0,)),
    "rank": ("smooth-ap", (15.0, 0.5)),
    "hardest": ("triplet-sh", ()),
    "hardest-exponential": ("goal", (0.05,)),
    "hardest-linear": ("goal(pair=lin-ms)", (0.05,)),
}
# Large tiles read less; small ones leave room for two programs on a processor, so that one
# multiplies while the other weighs. The plainest come first: should a later one bring the GPU to a
# halt, they are measured. Programs that work many tiles, one after the other, were slower.
POINTED = (
    Shape(128, 128, 64, 8, 3, 16),
    Shape(128, 128, 64, 8, 3, 16, 128),
    Shape(128, 128, 64, 4, 3, 16),
    Shape(128, 256, 64, 8, 3, 8),
    Shape(256, 128, 64, 8, 3, 8),
    Shape(64, 256, 64, 4, 3, 16),
)
DESCRIBED = (
    Shape(128, 128, 64, 4, 3, 16, None, True),
    Shape(128, 128, 64, 8, 3, 16, 128, True),
    Shape(128, 256, 64, 8, 3, 8, None, True),
    Shape(256, 128, 64, 8, 3, 8, None, True),
    Shape(128, 256, 64, 8, 4, 8, None, True),
    Shape(128, 256, 64, 16, 3, 8, None, True),
    Shape(128, 128, 64, 4, 3, 8, None, True),
)
Job = tuple[str, str, Shape]  # rule, precision, shape


def jobs() -> list[Job]:
    """Today's shapes first: the others are compared with what they give."""
    order = []
    for shapes in (None, POINTED, DESCRIBED):
        for precision in KINDS:
            for rule in (r for r in RULES if (r, precision) in SHAPES):
                for shape in shapes or (SHAPES[rule, precision],):
                    wide = shape.wide if shapes is None or precision == "bf16" else 32
                    order.append((rule, precision, shape._replace(wide=wide)))
    return list(dict.fromkeys(order))


class Case:
    """One kernel on the first block of a batch."""

    def __init__(self, rule: str, precision: str, batch: int, device: str) -> None:
        name, numbers = RULES[rule]
        self.rule, o = rule, objective(name).to(device)
        stream = o.stream()
        assert stream is not None
        generator = torch.Generator(device).manual_seed(0)
        both = torch.randn(2 * batch, WIDTH, generator=generator, device=device)
        both[:batch].mul_(4).add_(both[batch:])  # images near their captions
        with torch.no_grad():
            scale, bias = o.affine()
            vectors = embeddings._Lengths(both, scale, KINDS[precision])
        pairs = Positives.diagonal(batch, both.device)
        work = Work(
            o, bias, pairs, (None, None), 2**26, vectors.unit, vectors.used, vectors.scale
        )  # fmt: skip
        self.tiles = fused.FusedTiles(work, stream)
        rows = min(batch, self.tiles.size // batch)
        self.block = (0, rows, slice(0, rows))
        self.given = tuple(torch.tensor(n, device=device).expand(2 * batch) for n in numbers)

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """The kernel, once, in its present shape: parts of the summaries, and the weights."""
        shape, rows, columns = self.tiles._shape(self.rule), self.block[1], self.tiles.texts
        count = max(1, self.tiles.count)
        by_row = self.tiles._parts(count, -(-columns // shape.across), rows)
        by_column = self.tiles._parts(count, -(-rows // shape.down), columns)
        weights = self.tiles._launch(self.rule, self.block, self.given, by_row, by_column)
        return by_row, by_column, by_row[:0] if weights is None else weights

    def result(self) -> list[Tensor]:
        """What does not depend on the shape."""
        by_row, by_column, weights = self.run()
        found = [weights.float().clamp(min=-1e3)] if weights.numel() else []  # positives are -inf
        if self.rule in ("softmax", "rank"):
            return found
        for parts in (by_row,) if self.tiles.work.alone else (by_row, by_column):
            summary = self.tiles._merged(parts, BATCH)
            # Which of two equals is the hardest depends on the order of their sums.
            found += [x for n, x in enumerate(summary) if (n, self.rule[:4]) != (1, "hard")]
        return found

    def seconds(self) -> float:
        """The shortest of several launches, by the GPU's own clock."""
        best = float("inf")
        for _ in range(4):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()  # type: ignore[no-untyped-call]
            self.run()
            end.record()  # type: ignore[no-untyped-call]
            end.synchronize()
            best = min(best, start.elapsed_time(end) / 1e3)
        return best


def compiled(job: Job) -> None:
    """In a process of its own: a kernel, for the cache that all processes share."""
    rule, precision, shape = job
    from simgrad.objectives import kernels

    class Warm:
        """Takes a launch, and only compiles."""

        def __getitem__(self, grid: Any) -> Any:
            return lambda *given, **named: _tile.warmup(*given, grid=grid, **named)

    # On the CPU, so that the GPU is left alone; whether there is room on it is found out later.
    torch.set_num_threads(1)
    tiles._limits = lambda _: (2**30, True)
    fused.SHAPES = {**SHAPES, (rule, precision): shape}
    _tile, kernels.tile = kernels.tile, Warm()
    try:
        Case(rule, precision, 1024, "cpu").run()
    finally:
        kernels.tile = _tile


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    """In length: sums in another order may open a hinge or choose another hardest negative."""
    pairs = list(zip(found, expected, strict=True))
    return all(bool((a - b).norm() <= 0.01 * b.norm() + 1e-3) for a, b in pairs)


class Tuner:
    """Times of all that was measured so far."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, str], dict[Shape, float]] = {}
        self.expected: dict[tuple[str, str], list[Tensor]] = {}
        self.cases: dict[tuple[str, str], Case] = {}

    def measure(self, job: Job) -> str:
        """One line of the table."""
        rule, precision, shape = job
        key = (rule, precision)
        if key not in self.cases:
            self.cases.clear()  # one batch at a time
            self.cases[key] = Case(rule, precision, BATCH, "cuda")
        case = self.cases[key]
        fused.SHAPES = {**SHAPES, key: shape}
        if case.tiles._shape(rule) != shape:
            return "does not fit"
        found = [x[..., :: x.numel() // 2**24 | 1].clone() for x in case.result()]
        if not same(found, self.expected.setdefault(key, found)):
            return "gives something else"
        seconds = case.seconds()
        self.times.setdefault(key, {})[shape] = seconds
        return f"{1e3 * seconds:8.3f} ms"

    def best(self) -> dict[tuple[str, str], Shape]:
        """The fastest shape of each kernel."""
        return {key: min(times, key=times.__getitem__) for key, times in self.times.items()}

    def show(self) -> None:
        """Today's shape and the fastest."""
        for (rule, precision), shape in self.best().items():
            times = self.times[rule, precision]
            today = times.get(SHAPES[rule, precision])
            before = "" if today is None else f"{1e3 * today:8.3f} ms -> "
            print(f"{rule:20} {precision} {before}{1e3 * times[shape]:8.3f} ms  {_written(shape)}")

    def write(self) -> None:
        """The fastest shapes, in the package's table."""
        path = Path(tiles.__file__)
        text = path.read_text()
        for (rule, precision), shape in self.best().items():
            line = rf'(    \("{rule}", "{precision}"\): )Shape\(.*\),\n'
            text = re.sub(line, rf"\g<1>{_written(shape)},\n", text)
        path.write_text(text)
        print(f"written: {path}", flush=True)


def _written(shape: Shape) -> str:
    return f"Shape({', '.join(map(str, shape))})"


def tune(seconds: float, write: bool, workers: int) -> None:
    """Measure in the order of `jobs`, until the time is up."""
    start, tuner, todo = time.perf_counter(), Tuner(), jobs()

    def finish(status: int) -> None:
        for compiler in active_children():
            compiler.terminate()
        tuner.show()
        if write:
            tuner.write()
        sys.stdout.flush()
        os._exit(status)  # whatever threads still wait for: the GPU may have come to a halt

    # Should a kernel never end, this does.
    watch = threading.Timer(seconds + 15, finish, (1,))
    watch.daemon = True
    watch.start()
    pool = ProcessPoolExecutor(workers, get_context("spawn"))
    waiting: list[tuple[Job, Future[None]]] = [(job, pool.submit(compiled, job)) for job in todo]
    for (rule, precision, shape), future in waiting:
        left = start + seconds - time.perf_counter()
        # A compiler that failed is no matter: this process tries again, and says why it cannot.
        with contextlib.suppress(Exception):
            future.result(left)
        if time.perf_counter() > start + seconds:
            print("time is up", flush=True)
            break
        try:
            said = tuner.measure((rule, precision, shape))
        except Exception as error:  # of a compiler or a GPU: anything
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        print(f"{rule:20} {precision} {_written(shape):50} {said}", flush=True)
    finish(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so many")
    parser.add_argument("--write", action="store_true", help="put the fastest into the package")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here.")
    torch.set_float32_matmul_precision("high")
    tune(options.seconds, options.write, options.workers)
