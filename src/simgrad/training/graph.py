"""Steps as CUDA graphs: at batch 128 a GPU waits for launches, not for arithmetic.

Where all features live on the GPU, a step always does the same work on other rows. It is captured
once for each shape (captions, padded length) and replayed; per step the host sends one row of
numbers. Batches of another size, and the first few, run as plain steps with the same result.
"""

import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from simgrad.core.gpu import NothingFromHost, capturing
from simgrad.data.base import Rows
from simgrad.data.batches import Batch, Source
from simgrad.data.sampling import Drawn, IndexBatch, OfflineIndex, own_size
from simgrad.models.base import RetrievalModel
from simgrad.objectives import Objective
from simgrad.runs.recipe import Recipe
from simgrad.training import distributed

Update = Callable[[Batch, Objective], Tensor]  # a step; its loss
# Captions are padded to a multiple of this, so that a few captured shapes serve all batches.
_LENGTHS = 4
# Captions of a batch that is captured. A larger one keeps a GPU busy by itself, and what suits it,
# blocks and fused kernels, asks the host, which cannot be captured.
_LARGEST = 4096
# Plain steps before the first capture: libraries set themselves up, gradients get their memory.
_PLAIN = 3
_PLENTY = 0.3  # of a GPU's memory: as long as so much is free, nobody waits for it
_LITTLE = 0.15  # where less is free, a capture takes back first what is cached


_streams = threading.local()  # by device, this thread's
_taken: set[int] = set()  # streams of this process that somebody works on
_taking = threading.Lock()
_POOL = 32  # streams of a priority that torch makes; after these it hands them out again


class OwnedStream:
    """A stream that no other thread works on while this object exists.

    torch hands out the same few streams in turn, whoever has them. What one thread does on a stream
    that another captures becomes part of the captured work instead of being done.
    """

    def __init__(self, device: torch.device) -> None:
        of_each = ((device, priority) for priority in (0, -1) for _ in range(_POOL))
        every = (torch.cuda.Stream(d, priority=p) for d, p in of_each)  # type: ignore[no-untyped-call]
        with _taking:
            free = next((stream for stream in every if stream.cuda_stream not in _taken), None)
            if free is None:
                raise RuntimeError(f"more than {2 * _POOL} runs and groups of a process on a GPU")
            self.stream: Any = free
            _taken.add(free.cuda_stream)
        weakref.finalize(self, _taken.discard, free.cuda_stream)


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """On a GPU every thread works on a stream of its own: runs overlap, and steps can be captured.

    A thread's next run takes the same one, and with it the memory that is cached for it.
    """
    if device.type != "cuda":
        yield
        return
    wait_for_all(device)  # what was prepared on the default stream is there
    mine: dict[torch.device, OwnedStream] = vars(_streams).setdefault("by_device", {})
    if device not in mine:
        mine[device] = OwnedStream(device)
    with torch.cuda.stream(mine[device].stream):
        yield
        torch.cuda.current_stream(device).synchronize()


def wait_for_all(device: torch.device) -> None:
    """Wait for all work on a GPU; first for captures of other threads, which this would break."""
    with capturing:
        torch.cuda.synchronize(device)


def give_back() -> None:
    """Free the GPU memory of a finished run, most of it captured steps, for other processes.

    Where memory is plenty, this process keeps it for its next run: with sixteen processes on one
    GPU, giving it back cost each five seconds after a run.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()  # a run's objects refer to each other
        free, total = torch.cuda.mem_get_info()
        if free < _PLENTY * total:
            with capturing:
                torch.cuda.empty_cache()


@dataclass
class _Graph:
    """One shape's graph, and where it reads and writes."""

    graph: torch.cuda.CUDAGraph
    row: Tensor  # laid out as `BatchLayout` says
    value: Tensor


class BatchLayout(NamedTuple):
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


def padded(recipe: Recipe) -> bool:
    """Whether batches hold different numbers of images, so that places without one are marked."""
    return recipe.sampler == "pairs" and recipe.positives == "images"


def can_repeat(
    model: RetrievalModel, source: Source, recipe: Recipe, objectives: Iterable[Objective]
) -> bool:
    """Whether a run's steps always do the same work, on other rows."""
    return (
        recipe.graphs
        and source.resident
        and model.can_capture()
        and recipe.micro_batch is None
        and recipe.found_pairs is None  # a batch may hold any number of them
        and recipe.precision != "fp16"
        and _captions(recipe) <= _LARGEST
        # These would count the padding.
        and not (padded(recipe) and model.has_batch_norms())
        and not (padded(recipe) and not all(each.copes_with_gaps() for each in objectives))
        and distributed.size() == 1  # processes tell each other how long their captions are
    )


def captured_work(pool: Any, work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Work as a graph, and what it returns when that is replayed."""
    graph = torch.cuda.CUDAGraph()
    with capturing, _uncollected():
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        if free < _LITTLE * total:  # a capture cannot take what is cached for other streams
            torch.cuda.empty_cache()
        # Each thread has its own handle, and none can be made in a capture.
        torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            with NothingFromHost():
                made = work()
        except BaseException:
            with suppress(RuntimeError):  # what went wrong first is what is raised
                graph.capture_end()
            raise
        graph.capture_end()
    return graph, made


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection: destroying a graph of an earlier run would end the capture."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class BatchRow(NamedTuple):
    """A batch as a captured step takes it: which rows, and these as numbers on the device."""

    rows: IndexBatch
    numbers: Tensor
    full: bool  # a batch of another size is taken as a plain step


class Captured:
    """Steps of one source, replayed where they can be."""

    def __init__(
        self, update: Update, source: Source, recipe: Recipe, drawn_for_each: int = 0
    ) -> None:
        self.update, self.source, self.recipe = update, source, recipe
        captions = _captions(recipe)
        self.layout = BatchLayout(recipe.batch, captions, drawn_for_each * captions)
        self.longest = source.longest(np.arange(source.split.num_captions))
        self.graphs: dict[tuple[int, Objective], _Graph] = {}
        self.pool: Any = None
        self.done = 0

    @staticmethod
    def possible(
        model: RetrievalModel,
        source: Source,
        recipe: Recipe,
        device: torch.device,
        objectives: Iterable[Objective],
    ) -> bool:
        """Whether a run's steps can be captured."""
        return device.type == "cuda" and can_repeat(model, source, recipe, objectives)

    def batches(self, plan: list[IndexBatch], start: int, seed: int = 0) -> Iterator[BatchRow]:
        """An epoch's batches from the `start`-th on: sent to the device at once, as numbers.

        Nothing about them is random: `seed` is for steps that cut pictures.
        """
        full = [own_size(index)[1] == self.layout.captions for index in plan]
        nothing = np.zeros(sum(self.layout.parts()), dtype=np.int64)
        rows = (self.layout.row(i) if f else nothing for i, f in zip(plan, full, strict=True))
        table = torch.from_numpy(np.stack(list(rows))).to(self.source.device)
        for place in range(start, len(plan)):
            yield BatchRow(plan[place], table[place], full[place])

    def __call__(self, batch: BatchRow, objective: Objective) -> Tensor:
        """One step at the rates set before; the loss, still on the device."""
        self.done += 1
        if not batch.full or self.done <= _PLAIN:
            return self.update(self.source.fetch(batch.rows), objective)
        return self._replay(batch.numbers, batch.rows, objective)

    def _replay(self, row: Tensor, index: IndexBatch, objective: Objective) -> Tensor:
        length = padded_length(self.source.longest(index.captions), self.longest)
        if not self.graphs:
            give_back()  # what the plain steps held
            # The longest first: every other shape finds room in the memory that it leaves behind.
            self._graph(row, self.longest, objective)
        graph = self._graph(row, length, objective)
        graph.row.copy_(row)
        graph.graph.replay()
        return graph.value

    def _graph(self, row: Tensor, length: int, objective: Objective) -> _Graph:
        key = (length, objective)
        if key not in self.graphs:
            self.graphs[key] = self._capture(row, length, objective)
        return self.graphs[key]

    def _capture(self, row: Tensor, length: int, objective: Objective) -> _Graph:
        static = row.clone()
        image, caption, position, present, places = torch.split(static, self.layout.parts())
        drawn = None
        if self.layout.drawn:
            each = self.layout.drawn // self.layout.captions
            drawn = Drawn(self.layout.images, self.layout.captions, places.view(4, -1), each)
        nothing = IndexBatch(*(np.zeros(0, dtype=np.int64) for _ in range(3)))

        def step() -> Tensor:
            there = present.bool() if padded(self.recipe) else None
            features = self.source.gather(image, caption, length)
            return self.update(Batch(*features, position, nothing, there, drawn), objective)

        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph, value = captured_work(self.pool, step)
        return _Graph(graph, static, value)


class Captures:
    """Captured steps of a run, made again when what they captured has changed."""

    def __init__(
        self,
        model: RetrievalModel,
        update: Update,
        recipe: Recipe,
        device: torch.device,
        objectives: Iterable[Objective],
    ) -> None:
        self.model, self.update, self.recipe, self.device = model, update, recipe, device
        self.objectives = list(objectives)
        self.made: tuple[tuple[bool, int], Captured | None] | None = None  # what for, and its steps

    def of(self, source: Source, *, trained: bool, drawn: int) -> Captured | None:
        """Steps to replay; None where nothing can be captured.

        `trained`: whether the pretrained network is thawed; `drawn`: how many are drawn for each
        caption from outside the batch. A step that is captured would notice neither; those of
        before give their memory back.
        """
        if self.made is None or self.made[0] != (trained, drawn):
            self.made = None
            possible = Captured.possible(
                self.model, source, self.recipe, self.device, self.objectives
            )
            steps = Captured(self.update, source, self.recipe, drawn) if possible else None
            self.made = (trained, drawn), steps
        return self.made[1]
