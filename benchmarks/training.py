"""Training: steps of one run beside a plain loop, and what AOQ's second round costs.

    python benchmarks/training.py            # two cores
    python benchmarks/training.py --cuda     # one GPU

Batch 128 on precomputed features. Ours is what `simgrad train` does: captured CUDA graphs where
there is a GPU, plain steps elsewhere; AOQ's rounds are in bf16 on a GPU. The plain loop is a
DataLoader, the model as anybody would write it, Adam, and the loss read after every step, in eager
float32.
"""

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import torch
from common import Row, goal, print_rows, row
from floor import floor
from plain_models import PLAIN, adap_off_quin, operations, triplet_sh
from synthetic import split as make_split
from torch import Tensor, nn
from torch.utils.data import DataLoader

from simgrad.data import Sampler
from simgrad.data.base import Split
from simgrad.data.batches import Source
from simgrad.data.candidates import Candidates
from simgrad.data.vocabulary import Vocabulary
from simgrad.models import Inputs, build
from simgrad.runs.offline_draws import draw_of
from simgrad.runs.recipe import Recipe
from simgrad.training.graph import Captures, own_stream
from simgrad.training.loop import PlainSteps, Step
from simgrad.training.optimizing import Moment

BATCH = 128
MODELS = {
    "vse++": ("vse++", (2048,)),
    "vsrn": ("vsrn", (36, 2048)),
    "vse-infinity": ("vse-infinity(text=bigru)", (36, 2048)),
}
# A parameter is read twice for the gradient, which is written and read; Adam reads and writes three
# numbers for each.
_TRAFFIC = 4 * 10


class Ours:
    """Steps as `simgrad train` takes them."""

    def __init__(self, spec: str, split: Split, recipe: Recipe, device: str) -> None:
        self.device, self.recipe, self.split = torch.device(device), recipe, split
        vocabulary = Vocabulary.build(split.captions, min_count=1)
        assert split.features is not None
        shape = split.features.shape
        kind: Any = "features" if len(shape) == 1 else "regions"
        torch.manual_seed(0)
        model = build(spec, Inputs(kind, shape, len(vocabulary))).to(self.device)
        model.train()
        self.step = Step(model, recipe, self.device)
        self.source = Source(split, vocabulary, device=self.device, resident=True)
        self.draw = draw_of(recipe, split, _candidates(split)) if recipe.candidates else None
        self.captures = Captures(
            model, self.step.update, recipe, self.device, self.step.objectives.values()
        )

    def steps(self, count: int) -> Iterator[Tensor]:
        """The losses of an epoch's first steps."""
        sampler = Sampler("pairs", BATCH, drop_last=True)
        plan: Any = sampler.epoch(self.split, 0)[:count]
        plan = plan if self.draw is None else self.draw.epoch(plan, 0)

        drawn = 0 if self.draw is None else self.draw.for_each
        captured = self.captures.of(self.source, trained=True, drawn=drawn)
        take = captured or PlainSteps(self.source, self.step.update)
        now = Moment(1.0, 1.0, self.recipe.objective, False)
        for batch in take.batches(plan, 0, 0):
            self.step.optimizer.set_rates(now)
            yield take(batch, self.step.objectives[now.objective])

    def seconds(self, count: int) -> float:
        """Of a step; a first pass loads kernels and captures shapes."""
        with own_stream(self.device):
            for _ in self.steps(count):
                pass
            _wait(self.device)
            start = time.perf_counter()
            for _ in self.steps(count):
                pass
            _wait(self.device)
        return (time.perf_counter() - start) / count


def _candidates(split: Split) -> Candidates:
    """Drawn at random, five captions to an image, none of its own pair."""
    random = np.random.default_rng(0)
    captions, images = split.num_captions, split.num_images
    i2t = random.integers(5, captions, (images, 300)) + 5 * np.arange(images)[:, None]
    t2i = random.integers(1, images, (captions, 60)) + np.arange(captions)[:, None] // 5
    return Candidates((i2t % captions).astype(np.int32), (t2i % images).astype(np.int32), {})


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# -- the plain loop


def _with_drawn(batch: list[tuple[int, int]], drawn: Candidates) -> list[tuple[int, int]]:
    """Behind the pairs of a batch (image, caption), what is drawn for each, and its partners."""
    ranks = torch.randint(300, (len(batch),)).tolist()
    outside = [
        (int(drawn.t2i[caption, rank // 5]), int(drawn.i2t[image, rank]))
        for (image, caption), rank in zip(batch, ranks, strict=True)
    ]
    return [*batch, *outside, *((caption // 5, 5 * image) for image, caption in outside)]


class Plain:
    """A training loop as it is usually written: of AOQ's second round, if negatives are drawn."""

    def __init__(
        self, model: nn.Module, split: Split, device: str, drawn: Candidates | None = None
    ) -> None:
        self.model, self.device = model.to(device), device
        self.loss = triplet_sh if drawn is None else adap_off_quin
        self.adam = torch.optim.Adam(self.model.parameters(), lr=2e-4)
        words = Vocabulary.build(split.captions, min_count=1)
        tokens = [torch.tensor(words.encode(caption)) for caption in split.captions]
        features: Any = split.features
        pairs = [(int(image), k) for k, image in enumerate(split.image_of_caption)]

        def collate(chosen: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
            chosen = chosen if drawn is None else _with_drawn(chosen, drawn)
            images = torch.stack([torch.from_numpy(features.rows(i)) for i, _ in chosen])
            some = [tokens[k] for _, k in chosen]
            padded = nn.utils.rnn.pad_sequence(some, batch_first=True)
            return images, padded, torch.tensor([len(t) for t in some])

        gpu = device == "cuda"
        self.loader = DataLoader(
            pairs, BATCH, shuffle=True, collate_fn=collate, drop_last=True,  # type: ignore[arg-type]
            num_workers=4 if gpu else 0, pin_memory=gpu, persistent_workers=gpu,
        )  # fmt: skip

    def seconds(self, count: int) -> float:
        """Of a step, after a few to warm up."""
        warm, start = max(1, count // 4), 0.0
        for done, batch in enumerate(self.loader):
            if done == warm:
                start = time.perf_counter()
            if done == warm + count:
                break
            loss = self.loss(self.model(*(x.to(self.device) for x in batch)))
            self.adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
            self.adam.step()
            float(loss.detach())
        return (time.perf_counter() - start) / count

    def floor(self, kind: str) -> float:
        """Seconds that the products, or the parameters' traffic, take at least."""
        batch = [x.to(self.device) for x in next(iter(self.loader))]
        parameters = sum(p.numel() for p in self.model.parameters())
        moved = _TRAFFIC * parameters
        return floor(operations(self.model, *batch), moved, self.device, kind)


def step_rows(device: str, quick: bool) -> list[Row]:
    """One run's steps, with every model that reads precomputed features."""
    gpu = device == "cuda"
    count = (20 if quick else 40) if gpu else (1 if quick else 4)
    rows = []
    for name in MODELS if gpu else ("vse++",):
        spec, shape = MODELS[name]
        split = make_split(3000 if gpu else 600, shape)
        plain = Plain(PLAIN[name](), split, device)
        theirs = plain.seconds(count)
        setting = f"batch {BATCH}, {device}"
        for precision in ("float32", "bf16") if gpu else ("float32",):
            recipe = Recipe(objective="triplet-sh", positives="pairs", precision=precision)  # type: ignore[arg-type]
            ours = Ours(spec, split, recipe, device)
            seconds = ours.seconds(count)
            if not gpu:  # a few long steps, on a machine that others share: in turn
                for _ in range(2):
                    theirs = min(theirs, plain.seconds(count))
                    seconds = min(seconds, ours.seconds(count))
            lowest = plain.floor({"bf16": "bfloat16"}.get(precision, precision))
            ratio = theirs / seconds
            wanted = goal(">= 2x", ratio >= 2) if precision == "bf16" else {}
            rows += [
                row(f"{name} run, {precision}", setting, seconds=seconds, floor=lowest,
                    figure=1 / seconds, unit="{:,.1f} steps/s"),
                row(f"{name} run, {precision} / plain loop", setting, seconds=theirs, ratio=ratio,
                    figure=1 / theirs, unit="{:,.1f} steps/s", **wanted),
            ]  # fmt: skip
            del ours
            _forget()
    return rows


def round_rows(device: str, quick: bool = False) -> list[Row]:
    """What a batch of AOQ's second round costs, beside one of the first and beside a plain loop.

    The first ratio has no goal: two and three times the images and captions are encoded, and the
    quicker both rounds are, the nearer it comes to that.
    """
    small = device == "cpu"
    split = make_split(1000 if small else 3000, (36, 128 if small else 2048))
    count = 3 if small else 20 if quick else 40
    setting = f"batch {BATCH}, {device}"
    rows = []
    # The paper's figure is of VSRN with its captioner.
    for name, spec in ({"VSRN": _SMALL} if small else _ROUNDS).items():
        first = _round(spec, "triplet-sh", split, device).seconds(count)
        _forget()
        rows.append(row(f"{name} batch, round one", setting, seconds=first))
        for objective in ("off-tri", "adap-off-quin"):
            seconds = _round(spec, objective, split, device).seconds(count)
            _forget()
            rows.append(
                row(f"{name} batch, round two, {objective}", setting, seconds=seconds,
                    figure=seconds / first, unit="{:.2f} x round one")
            )  # fmt: skip
    return rows if small else rows + _launched_rounds(split) + _plain_rounds(split, count, seconds)


def _launched_rounds(split: Split) -> list[Row]:
    """Without captured graphs: where a GPU waits for launches, which is why it costs little.

    These depend on a host that others may share, so the rounds are timed in turn.
    """
    name, spec = next(iter(_ROUNDS.items()))
    objectives = ("triplet-sh", "off-tri", "adap-off-quin")
    rounds = [_round(spec, each, split, "cuda", graphs=False) for each in objectives]
    times = [[each.seconds(10) for each in rounds] for _ in range(3)]
    first, *others = (min(some) for some in zip(*times, strict=True))
    del rounds
    _forget()
    name, setting = f"{name} batch, launched, round", f"batch {BATCH}, cuda"
    return [
        row(f"{name} one", setting, seconds=first),
        *(
            row(f"{name} two, {objective}", setting, seconds=seconds, figure=seconds / first,
                unit="{:.2f} x round one")
            for objective, seconds in zip(objectives[1:], others, strict=True)
        ),
    ]  # fmt: skip


def _plain_rounds(split: Split, count: int, ours: float) -> list[Row]:
    """Of a plain loop, VSRN without captioner: what the second round costs where all is counted."""
    rounds = (("one", None), ("two, adap-off-quin", _candidates(split)))
    one, two = (Plain(PLAIN["vsrn"](), split, "cuda", drawn).seconds(count) for _, drawn in rounds)
    name, setting = "VSRN batch, round", f"batch {BATCH}, cuda"
    return [
        row(f"{name} one, plain loop", setting, seconds=one),
        row(f"{name} two, adap-off-quin / plain loop", setting, seconds=two, figure=two / one,
            unit="{:.2f} x its round one", ratio=two / ours, **goal(">= 4x", two / ours >= 4)),
    ]  # fmt: skip


_SMALL = "vsrn(dimension=128)"
_ROUNDS = {"VSRN with captioner": "vsrn(captioner=true)", "VSRN": "vsrn"}


def _round(spec: str, objective: str, split: Split, device: str, *, graphs: bool = True) -> Ours:
    mined = None if objective == "triplet-sh" else "mined"
    recipe = Recipe(
        objective=objective, positives="pairs", depth=300, candidates=mined, graphs=graphs
    )
    recipe = recipe.replace(precision="float32" if device == "cpu" else "bf16")
    return Ours(spec, split, recipe, device)


def _forget() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def profile(device: str) -> str:
    """Where a step's time goes: the operations that take most of it."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    gpu = device == "cuda"
    recipe = Recipe(objective="triplet-sh", positives="pairs")
    recipe = recipe.replace(precision="bf16" if gpu else "float32")
    jobs = {}
    for name in MODELS if gpu else ("vse++",):
        spec, shape = MODELS[name]
        jobs[f"{name}, {recipe.precision}"] = Ours(
            spec, make_split(1000 if gpu else 600, shape), recipe, device
        )
    count = 10 if gpu else 4
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    texts = []
    for name, ours in jobs.items():
        seconds = ours.seconds(count)
        with own_stream(ours.device), record(activities=kinds) as found:
            for _ in ours.steps(count):
                pass
            _wait(ours.device)
        head = f"{name}, batch {BATCH}: {seconds * 1e3:.2f} ms a step"
        texts.append(f"{head}\n{_largest(found.key_averages(), gpu, count)}")
    return "\n\n".join(texts) + "\n"


def _largest(events: Any, gpu: bool, steps: int, most: int = 15) -> str:
    """The events that take most time by themselves: share, time and calls a step."""
    own = "self_device_time_total" if gpu else "self_cpu_time_total"  # microseconds
    total = sum(getattr(event, own) for event in events) or 1.0
    lines = ["  share    a step  calls"]
    for event in sorted(events, key=lambda e: -getattr(e, own))[:most]:
        time_taken, calls = getattr(event, own), event.count / steps
        line = f"{time_taken / total:6.1%}  {time_taken / steps / 1e3:6.2f} ms  {calls:5.1f}"
        lines.append(f" {line}  {event.key[:90]}")
    return "\n".join(lines)


def run(quick: bool = False) -> list[Row]:
    """On the CPU."""
    return step_rows("cpu", quick) + ([] if quick else round_rows("cpu"))


def run_cuda(quick: bool = False) -> list[Row]:
    """On a GPU."""
    return step_rows("cuda", quick) + round_rows("cuda", quick)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    options = parser.parse_args()
    if options.profile:
        print(profile("cuda" if options.cuda else "cpu"))
    else:
        print_rows(run_cuda(options.quick) if options.cuda else run(options.quick))
