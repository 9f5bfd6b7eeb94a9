"""Steps as CUDA graphs: at batch 128 a GPU waits for launches, not for arithmetic.

Where all features live on the GPU, a step always does the same work on other rows. It is captured
once for each shape (captions, padded length) and replayed; per step the host sends one row of
numbers. Batches of another size, and the first few, run as plain steps with the same result.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simgrad.data.batches import Batch, Source
from simgrad.data.sampling import IndexBatch
from simgrad.training.recipe import Recipe
from simgrad.training.schedule import Moment
from simgrad.training.step import Step

MomentOf = Callable[[int], Moment]
# Captions are padded to a multiple of this, so that a few captured shapes serve all batches.
_LENGTHS = 4
# Plain steps before the first capture: libraries set themselves up, gradients get their memory.
_PLAIN = 3
# One capture at a time in a process that trains several runs side by side.
_capturing = threading.Lock()


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """On a GPU every run works on a stream of its own: runs overlap, and steps can be captured."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize(device)  # what was prepared on the default stream is there
    with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
        yield
        torch.cuda.current_stream(device).synchronize()


def plain_steps(
    step: Step, source: Source, plan: list[IndexBatch], start: int, seed: int, moment_of: MomentOf
) -> Iterator[Tensor]:
    """The losses of an epoch's steps from the `start`-th on."""
    for place, batch in enumerate(source.batches(plan, start=start, seed=seed), start):
        yield step(batch, moment_of(place))


@dataclass
class _Captured:
    """One shape's graph, and where it reads and writes."""

    graph: torch.cuda.CUDAGraph
    rows: Tensor  # [images | captions | image of caption | present]
    value: Tensor


class GraphSteps:
    """Replays captured steps where it can."""

    def __init__(self, step: Step, source: Source, recipe: Recipe) -> None:
        self.step, self.source, self.recipe = step, source, recipe
        self.captured: dict[tuple[int, int, str], _Captured] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.done = 0

    @staticmethod
    def possible(source: Source, recipe: Recipe, device: torch.device) -> bool:
        """Whether a run's steps can be captured."""
        return (
            recipe.graphs
            and device.type == "cuda"
            and source.resident
            and recipe.micro_batch is None
            and recipe.precision != "fp16"
            and recipe.candidates is None
        )

    def __call__(self, plan: list[IndexBatch], start: int, moment_of: MomentOf) -> Iterator[Tensor]:
        """The losses of an epoch's steps from the `start`-th on."""
        per_image = self.recipe.captions_per_image if self.recipe.sampler == "images" else 1
        size = self.recipe.batch * per_image  # captions in a full batch
        images = self.recipe.batch
        table = self._upload(plan, size, images)
        for place in range(start, len(plan)):
            index, moment = plan[place], moment_of(place)
            if len(index.captions) != size or self.done < _PLAIN:
                yield self.step(self.source.fetch(index), moment)
            else:
                self.step.set_moment(moment)
                yield self._replay(table[place], index, moment.objective, size, images)
            self.done += 1

    def _upload(self, plan: list[IndexBatch], size: int, images: int) -> Tensor:
        """All full batches' rows in one table on the device."""
        table = np.zeros((len(plan), 2 * images + 2 * size), dtype=np.int64)
        for row, index in zip(table, plan, strict=True):
            n, m = len(index.images), len(index.captions)
            if m == size:
                row[:n] = index.images
                row[n:images] = index.images[0]  # padding: marked as not present
                row[images : images + m] = index.captions
                row[images + size : images + size + m] = index.image_of_caption
                row[images + 2 * size : images + 2 * size + n] = 1
        return torch.from_numpy(table).to(self.source.device)

    def _replay(
        self, rows: Tensor, index: IndexBatch, objective: str, size: int, images: int
    ) -> Tensor:
        longest = self.source.longest(index.captions)
        length = -(-longest // _LENGTHS) * _LENGTHS
        key = (size, length, objective)
        if key not in self.captured:
            self.captured[key] = self._capture(rows, length, objective, size, images)
        captured = self.captured[key]
        captured.rows.copy_(rows)
        captured.graph.replay()
        return captured.value

    def _capture(
        self, rows: Tensor, length: int, objective: str, size: int, images: int
    ) -> _Captured:
        static = rows.clone()
        image, caption, position, present = torch.split(static, [images, size, size, images])
        # Padding is only ever needed where captions are drawn at random.
        padded = self.recipe.sampler == "pairs" and self.recipe.positives == "images"
        nothing = IndexBatch(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
        graph = torch.cuda.CUDAGraph()
        with _capturing:
            torch.cuda.synchronize()
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                features, tokens, lengths = self.source.gather(image, caption, length)
                batch = Batch(features, tokens, lengths, position, nothing)
                value = self.step.update(batch, objective, present.bool() if padded else None)
            finally:
                graph.capture_end()
        return _Captured(graph, static, value)
