"""Steps as CUDA graphs: at batch 128 a GPU waits for launches, not for arithmetic.

Where all features live on the GPU, a step always does the same work on other rows. It is captured
once for each shape (captions, padded length) and replayed; per step the host sends one row of
numbers. Batches of another size, and the first few, run as plain steps with the same result.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from simgrad.core.gpu import capturing
from simgrad.data.base import Rows
from simgrad.data.batches import Batch, Source
from simgrad.data.sampling import IndexBatch
from simgrad.mining.drawing import Drawn, OfflineIndex, own_size
from simgrad.runs.recipe import Recipe
from simgrad.training import distributed
from simgrad.training.schedule import Moment
from simgrad.training.step import Step

MomentOf = Callable[[int], Moment]
# Captions are padded to a multiple of this, so that a few captured shapes serve all batches.
_LENGTHS = 4
# Captions of a batch that is captured. A larger one keeps a GPU busy by itself, and what suits it,
# blocks and fused kernels, asks the host, which cannot be captured.
_LARGEST = 4096
# Plain steps before the first capture: libraries set themselves up, gradients get their memory.
_PLAIN = 3


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


def give_back() -> None:
    """What a run held on a GPU, captured steps above all: others are waiting for memory."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()  # a run refers to itself
        with capturing:
            torch.cuda.empty_cache()


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
    row: Tensor  # laid out as `_Layout` says
    value: Tensor


class _Layout(NamedTuple):
    """The parts of a row of numbers that tells a captured step what to work on."""

    images: int  # of a full batch, repeated ones included
    captions: int
    drawn: int  # images, and as many captions, drawn from outside the batch

    def parts(self) -> list[int]:
        """[images, drawn ones behind | captions | image of caption | present | places of drawn]"""
        drawn = 4 * self.captions if self.drawn else 0
        return [
            self.images + self.drawn,
            self.captions + self.drawn,
            self.captions,
            self.images,
            drawn,
        ]

    def row(self, index: IndexBatch) -> Rows:
        """A batch's numbers; what is missing to a full one repeats its first image or caption."""
        n, m = own_size(index)
        image, caption = (np.full(k, rows[0]) for k, rows in zip(
            self.parts(), (index.images, index.captions), strict=False))  # fmt: skip
        image[:n], caption[:m] = index.images[:n], index.captions[:m]
        present = np.arange(self.images) < n
        places: list[Rows] = []
        if isinstance(index, OfflineIndex):
            more = index.images[n:], index.captions[m:]
            image[self.images :][: len(more[0])] = more[0]
            caption[self.captions :][: len(more[1])] = more[1]
            # What was drawn stands behind a full batch now.
            shift = {"image": (n, self.images - n), "caption": (m, self.captions - m)}
            for name, place in index.places().items():
                own, by = shift[name.removeprefix("partner_")]
                places.append(np.where(place < own, place, place + by))
        return np.concatenate([image, caption, index.image_of_caption[:m], present, *places])


def padded_length(longest: int, of_all: int) -> int:
    """Tokens that a batch is padded to; a network may read no more than the longest caption has."""
    return min(-(-longest // _LENGTHS) * _LENGTHS, of_all)


def _captions(recipe: Recipe) -> int:
    """Of a full batch."""
    return recipe.batch * (recipe.captions_per_image if recipe.sampler == "images" else 1)


def _padded(recipe: Recipe) -> bool:
    """Images that are not there are told apart: only where captions are drawn at random."""
    return recipe.sampler == "pairs" and recipe.positives == "images"


class GraphSteps:
    """Replays captured steps where it can."""

    def __init__(self, step: Step, source: Source, recipe: Recipe, drawn_for_each: int = 0) -> None:
        self.step, self.source, self.recipe = step, source, recipe
        captions = _captions(recipe)
        self.layout = _Layout(recipe.batch, captions, drawn_for_each * captions)
        self.longest = source.longest(np.arange(source.split.num_captions))
        self.captured: dict[tuple[int, str], _Captured] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.done = 0

    @staticmethod
    def possible(step: Step, source: Source, recipe: Recipe, device: torch.device) -> bool:
        """Whether a run's steps can be captured."""
        return (
            recipe.graphs
            and device.type == "cuda"
            and source.resident
            and recipe.micro_batch is None
            and recipe.precision != "fp16"
            and _captions(recipe) <= _LARGEST
            # Batch norms would count the padding.
            and not (_padded(recipe) and step.model.has_batch_norms())
            and distributed.size() == 1  # processes tell each other how long their captions are
        )

    def __call__(self, plan: list[IndexBatch], start: int, moment_of: MomentOf) -> Iterator[Tensor]:
        """The losses of an epoch's steps from the `start`-th on."""
        full = [own_size(index)[1] == self.layout.captions for index in plan]
        nothing = np.zeros(sum(self.layout.parts()), dtype=np.int64)
        rows = (self.layout.row(i) if f else nothing for i, f in zip(plan, full, strict=True))
        table = torch.from_numpy(np.stack(list(rows))).to(self.source.device)
        for place in range(start, len(plan)):
            index, moment = plan[place], moment_of(place)
            if not full[place] or self.done < _PLAIN:
                yield self.step(self.source.fetch(index), moment)
            else:
                self.step.set_moment(moment)
                yield self._replay(table[place], index, moment.objective)
            self.done += 1

    def _replay(self, row: Tensor, index: IndexBatch, objective: str) -> Tensor:
        length = padded_length(self.source.longest(index.captions), self.longest)
        if not self.captured:
            give_back()  # what the plain steps held
            # The longest first: every other shape finds room in the memory that it leaves behind.
            self._captured(row, self.longest, objective)
        captured = self._captured(row, length, objective)
        captured.row.copy_(row)
        captured.graph.replay()
        return captured.value

    def _captured(self, row: Tensor, length: int, objective: str) -> _Captured:
        key = (length, objective)
        if key not in self.captured:
            self.captured[key] = self._capture(row, length, objective)
        return self.captured[key]

    def _capture(self, row: Tensor, length: int, objective: str) -> _Captured:
        static = row.clone()
        image, caption, position, present, places = torch.split(static, self.layout.parts())
        drawn = None
        if self.layout.drawn:
            each = self.layout.drawn // self.layout.captions
            drawn = Drawn(self.layout.images, self.layout.captions, places.view(4, -1), each)
        padded = _padded(self.recipe)
        nothing = IndexBatch(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
        graph = torch.cuda.CUDAGraph()
        with capturing:
            torch.cuda.synchronize()
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                features, tokens, lengths = self.source.gather(image, caption, length)
                batch = Batch(features, tokens, lengths, position, nothing)
                there = present.bool() if padded else None
                value = self.step.update(batch, objective, there, drawn)
            finally:
                graph.capture_end()
        return _Captured(graph, static, value)


class RunSteps:
    """A run's steps: captured where that is possible, plain elsewhere."""

    def __init__(
        self, step: Step, sources: dict[bool, Source], recipe: Recipe, device: torch.device
    ) -> None:
        self.step, self.recipe, self.device = step, recipe, device
        self.sources = sources  # by whether a pretrained network is trained
        self.captured: tuple[Any, GraphSteps | None] = (None, None)  # what for, and its steps

    def __call__(
        self,
        plan: list[IndexBatch],
        start: int,
        seed: int,
        moment_of: MomentOf,
        *,
        trained: bool,
        drawn: int,
    ) -> Iterator[Tensor]:
        """The losses of an epoch's steps from the `start`-th on.

        `trained`: whether the pretrained network is thawed; `drawn`: how many are drawn for each
        caption from outside the batch.
        """
        graphs = self._graphs(trained, drawn)
        if graphs is not None:
            return graphs(plan, start, moment_of)
        return plain_steps(self.step, self.sources[trained], plan, start, seed, moment_of)

    def _graphs(self, trained: bool, drawn: int) -> GraphSteps | None:
        """Steps to capture, for a frozen or thawed network, with or without draws.

        A step that is captured would notice neither; those of before give their memory back.
        """
        if self.captured[0] != (trained, drawn):
            source, self.captured = self.sources[trained], (None, None)
            possible = GraphSteps.possible(self.step, source, self.recipe, self.device)
            steps = GraphSteps(self.step, source, self.recipe, drawn) if possible else None
            self.captured = (trained, drawn), steps
        return self.captured[1]
