"""Start-up: how long until there is an answer, and until a model learns.

    python benchmarks/startup.py
    python benchmarks/startup.py --cuda    # the first training step on a GPU

Each is a process of its own, the shortest of a few. The floor of whatever computes is `import
torch`. The first training step is that of `simgrad train` on scenes: everything from the start of
the process, data and model included; its floor is the first step of the same model written plainly,
on random numbers.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Row, command, goal, installed, row

# What a peer needs to have a loss at hand.
PEERS = {
    "pytorch_metric_learning": "losses.NTXentLoss()",
    "open_clip": "loss.ClipLoss()",
    "sentence_transformers": "losses.MultipleNegativesRankingLoss",
}
PLAIN_STEP = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from plain_models import VsePlusPlus, WIDTH
model = VsePlusPlus().to(sys.argv[2])
adam = torch.optim.Adam(model.parameters())
numbers = torch.randn(128, WIDTH), torch.randint(4, 900, (128, 12)), torch.full((128,), 12)
model(*(x.to(sys.argv[2]) for x in numbers)).sum().backward()
adam.step()
print(float(model.fc.weight.sum()))
"""
# What `simgrad train` does, left after the first step.
FIRST_STEP = """
import os, sys
from simgrad.training import loop
update = loop.Step.update
def once(self, *given):
    float(update(self, *given))
    os._exit(0)
loop.Step.update = once
from simgrad.training import Recipe, train
train(Recipe(data=sys.argv[1], device=sys.argv[3]), sys.argv[2])
"""
DATA = "scenes(features=global, train={}, val=500, test=500)"


def seconds_of(command: list[str], times: int, environment: dict[str, str] | None = None) -> float:
    """The shortest wall time of a process; it must succeed."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        best = min(best, time.perf_counter() - start)
        if done.returncode:
            raise RuntimeError(f"{command[:3]}: {done.stderr.strip()[-300:]}")
    return best


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def import_rows(times: int, peers: dict[str, str]) -> list[Row]:
    """The command's help, and the imports."""
    help_page = seconds_of(python("from simgrad.cli.program import main; main(['--help'])"), times)
    torch = seconds_of(python("import torch"), times)
    ours = seconds_of(python("import simgrad"), times)
    whole = seconds_of(python("import simgrad; simgrad.objective('goal')"), times)
    rows = [
        row("simgrad --help", "process", seconds=help_page,
            floor=seconds_of(python("pass"), times), **goal("< 1 s", help_page < 1)),
        row("import simgrad", "process", seconds=ours),
        row("import simgrad, make an objective", "process", seconds=whole, floor=torch),
    ]  # fmt: skip
    for peer, loss in peers.items():
        if installed(peer, f"a loss of {peer}"):
            start = python(f"from {peer} import {loss.split('.')[0]}; {loss}")
            theirs = seconds_of(start, 1)
            rows.append(
                row(f"make an objective / {peer}", "process", seconds=theirs, ratio=theirs / whole)
            )
    return rows


def step_rows(device: str, times: int, images: int) -> list[Row]:
    """From nothing to the first update: with an empty cache, then so many times with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SIMGRAD_CACHE": f"{folder}/cache"}

        def begin(number: int) -> float:
            run = f"{folder}/run-{number}"
            command = [*python(FIRST_STEP), DATA.format(images), run, device]
            return seconds_of(command, 1, environment)

        first = begin(0)
        again = [begin(number) for number in range(1, times + 1)]
    setting = f"scenes, {images:,} images, {device}"
    plain = [*python(PLAIN_STEP), str(Path(__file__).resolve().parent), device]
    floor = seconds_of(plain, max(1, times))
    rows = [row("first training step", f"{setting}, nothing cached", seconds=first, floor=floor)]
    if again:
        rows.append(row("first training step", setting, seconds=min(again), floor=floor))
    return rows


def run(quick: bool = False) -> list[Row]:
    """On the CPU."""
    times = 1 if quick else 2
    rows = import_rows(times, {} if quick else PEERS)
    return rows + (step_rows("cpu", 0, 1000) if quick else step_rows("cpu", times, 4000))


def run_cuda(quick: bool = False) -> list[Row]:
    """The first step on a GPU; the rest is the processor's."""
    return step_rows("cuda", 0, 1000 if quick else 4000)


if __name__ == "__main__":
    command(__doc__, run, run_cuda)
