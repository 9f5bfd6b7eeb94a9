"""Features of pictures, computed once: through a frozen network, into memory-mapped files.

A run can be killed at any time and started again: rows are computed in fixed chunks, a marker says
how many are safely on disk, and a file gets its name only when it is whole. The result has the
same bytes as that of a run that nobody interrupted.

On a CPU each worker takes a chunk from file to features in one thread: two cores that share nothing
are quicker than one network spread over both. With a GPU the workers decode and the GPU computes;
on many cores they are processes (`reading.py`).
"""

import contextlib
import functools
import hashlib
import os
import queue
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.core.derived import cache_folder, kept_array
from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.core.files import (
    lock,
    new_array,
    refuse_link,
    sha256,
    writing,
)
from simgrad.core.threads import cores
from simgrad.data import transforms
from simgrad.data.arrays import ArrayFeatures
from simgrad.data.base import Features, Pictures, Split
from simgrad.data.cutting import open_picture
from simgrad.data.log import HOW_TO_SKIP
from simgrad.data.reading import Died, Readers, read_by, readers
from simgrad.models.checkpoint import weights_hash
from simgrad.models.networks.backbones import Backbone
from simgrad.runs.begun import Begun, FeatureWork, begun, finish, lock_of, mark, partial, rows_hash

Array = npt.NDArray[Any]
# Pictures that one reader takes for a GPU at a time, and how many threads read: more of them
# would wait for Python's lock.
_PIECE, _THREADS = 16, 8
_CPU_BATCH = 2
_SAVE_EVERY = 2.0  # seconds between markers


@dataclass(frozen=True)
class Job:
    """How features are computed; everything that decides their bytes."""

    backbone: "Backbone"
    weights_sha256: str
    grid: int | None = None  # cells a side; None: one vector per picture
    half: bool = False
    batch: int = 64
    device: torch.device = torch.device("cpu")
    workers: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        if self.grid is None:
            return (self.backbone.dimension,)
        return (self.grid * self.grid, self.backbone.grid_dimension)

    @property
    def settings(self) -> str:
        """Two jobs with the same settings write the same bytes for the same pictures."""
        network = self.backbone
        what = (network.name, self.weights_sha256, network.size, network.transform)
        return sha256(repr((*what, self.grid, self.half, self.batch, self.device.type)))

    def work(self, split: Split, limit: int | None = None) -> FeatureWork:
        """What a file of this job's features of a split is made from."""
        names = sha256(*(f"\0{name}" for name in split.image_names[:limit]))
        return FeatureWork(self.settings, split.dataset, names, _pictures(split).content(), limit)


def make_job(
    backbone: "Backbone",
    *,
    grid: int | None = None,
    half: bool = False,
    batch: int = 64,
    device: str | torch.device = "auto",
    workers: int | None = None,
) -> Job:
    """A job on a device; `auto` takes the GPU if there is one."""

    for what, value in (("grid", grid), ("batch", batch), ("workers", workers)):
        if value is not None and not 1 <= value <= 100_000:
            raise InputError(f"features: {what} is 1 or more, not {value}.")
    place = pick_device(device) if isinstance(device, str) else device
    try:
        network = backbone.folded().to(place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:120]
        raise InputError(f"features: cannot compute on '{device}' ({reason}).") from None
    workers = workers or cores()
    return Job(network, weights_hash(backbone), grid, half, batch, place, workers)


def compute(
    split: Split,
    job: Job,
    target: Path,
    *,
    limit: int | None = None,
    report: Callable[[int], None],
    wait: bool = False,
) -> int:
    """Write `target` (.npy), or go on with it; gives how many rows were computed now.

    `report` is called with the number of rows that are done. `wait` for another process that is
    writing it, instead of declining.
    """
    rows = split.num_images if limit is None else min(limit, split.num_images)
    _refuse_missing(split, rows)
    work = job.work(split, limit)
    growing = partial(target)
    with lock(lock_of(target), wait=wait, what=str(target)):
        left = begun(target, work, rows)
        report(left.rows)
        if target.exists() and left.rows == rows:
            return 0
        kind = np.float16 if job.half else np.float32
        array, digest = _open(growing, left, (rows, *job.shape), kind)
        at = done = left.rows if digest.hexdigest() == left.content else 0
        digest = digest if done else hashlib.sha256()
        saved = monotonic()
        for values in _chunks(split, job, range(done, rows, job.batch), rows):
            array[at : at + len(values)] = values
            digest.update(array[at : at + len(values)].tobytes())
            at += len(values)
            report(at)
            if monotonic() - saved > _SAVE_EVERY or at == rows:
                array.flush()
                mark(target, work, at, digest.hexdigest())
                saved = monotonic()
        array.flush()
        del array  # Windows renames no file that is mapped
        os.replace(growing, target)
    return rows - done


def _pictures(split: Split) -> Pictures:
    if split.pictures is None:
        raise InputError(
            f"{split.dataset}, split '{split.name}' has no pictures to compute features of."
        )
    return split.pictures


def _refuse_missing(split: Split, rows: int) -> None:
    """Refuse missing pictures now, not after hours of work."""
    pictures = _pictures(split)
    paths = (path for row in range(rows) if (path := pictures.path(row)) is not None)
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise InputError(
            f"{missing[0]}: there is no such picture ({len(missing):,} of the {rows:,} of split "
            f"'{split.name}' are missing). {HOW_TO_SKIP}"
        )


def _open(
    path: Path, left: Begun, shape: tuple[int, ...], dtype: type
) -> "tuple[np.memmap[Any, Any], hashlib._Hash]":
    """The array to go on with, and the hash of the rows that it has."""
    if left.rows:
        with contextlib.suppress(ValueError), writing(path):  # damaged
            refuse_link(path)
            array = np.lib.format.open_memmap(path, mode="r+")
            if array.shape == shape and array.dtype == dtype:
                return array, rows_hash(array, left.rows)
    return new_array(path, shape, dtype), hashlib.sha256()


def _chunks(split: Split, job: Job, starts: range, rows: int) -> Iterator[Array]:
    """Features chunk by chunk, in order.

    A processor reads and computes a chunk in one thread. For a GPU many readers take a few pictures
    each, so that the first chunk is there soon and none waits for one slow reader.
    """
    on_cpu = job.device.type == "cpu"
    piece = job.batch if on_cpu else _PIECE
    apart = _apart(split, job, len(starts) * job.batch)
    workers = job.workers if on_cpu or apart else min(job.workers, _THREADS)

    def work(start: int, stop: int) -> Tensor:
        pixels = _read(split, job, range(start, stop), free)
        return _forward(job, pixels) if on_cpu else pixels

    # Readers that each start threads of their own only get in the way.
    one_thread_each = functools.partial(torch.set_num_threads, 1)
    threads = torch.get_num_threads()
    processes = readers(workers if apart else 0, job.backbone.transform, job.backbone.size, piece)
    with processes as free, ThreadPoolExecutor(workers, initializer=one_thread_each) as pool:
        waiting: deque[list[Future[Tensor]]] = deque()
        ahead = max(1, workers * piece // job.batch) + 1  # chunks, so that nobody is idle
        try:
            for start in starts:
                stop = min(start + job.batch, rows)
                parts = range(start, stop, piece)
                waiting.append([pool.submit(work, a, min(a + piece, stop)) for a in parts])
                if len(waiting) > ahead:
                    yield _result(job, waiting.popleft(), on_cpu)
            while waiting:
                yield _result(job, waiting.popleft(), on_cpu)
        finally:
            for future in (future for chunk in waiting for future in chunk):
                future.cancel()
            torch.set_num_threads(threads)  # threads to come would inherit the one


def _apart(split: Split, job: Job, rows: int) -> bool:
    """Whether processes read: for a GPU, where there are more cores than threads can use, and
    enough pictures, in files, to be worth the start."""
    pictures = split.pictures
    return (
        job.device.type == "cuda"
        and job.workers > _THREADS
        and rows >= job.workers * _PIECE
        and pictures is not None
        and all(pictures.path(row) is not None for row in (0, len(pictures) - 1))
    )


def _result(job: Job, parts: list[Future[Tensor]], computed: bool) -> Array:
    values = torch.cat([part.result().to(job.device, non_blocking=True) for part in parts])
    array: Array = (values if computed else _forward(job, values)).float().cpu().numpy()
    return array


def _forward(job: Job, pixels: Tensor) -> Tensor:
    with torch.inference_mode():
        # On a CPU two pictures at a time: they fit into its cache, and memory of one layer is used
        # again for the next. A GPU takes all at once. Contiguous, however they were read: a result
        # may depend on how its input lies in memory.
        size = _CPU_BATCH if job.device.type == "cpu" else len(pixels)
        pieces = torch.split(pixels.contiguous(), size)
        if job.grid is None:
            return torch.cat([job.backbone.pooled(piece) for piece in pieces])
        return torch.cat([job.backbone.grid(piece, job.grid) for piece in pieces])


def _read(split: Split, job: Job, rows: range, free: Readers) -> Tensor:
    """(rows, 3, size, size) bytes, where the device can fetch them."""
    try:
        return _read_pictures(_pictures(split), job, rows, free)
    except InputError as error:
        raise InputError(f"{error} {HOW_TO_SKIP}") from None


def _read_pictures(pictures: Pictures, job: Job, rows: range, free: Readers) -> Tensor:
    network, on_gpu = job.backbone, job.device.type == "cuda"
    # A large JPEG is decoded at twice the size that is needed: quicker, and as good.
    paths, least = [pictures.path(row) for row in rows], 2 * (network.size + 32)
    with contextlib.suppress(Died, queue.Empty):  # then they are read here
        return read_by(free, paths, least, Tensor.pin_memory if on_gpu else Tensor.clone)
    transform = transforms.named(network.transform, train=False, size=network.size)
    opened = (
        pictures.picture(row) if path is None else open_picture(path, str(path), least)
        for row, path in zip(rows, paths, strict=True)
    )
    pixels = torch.stack([transform(picture, None) for picture in opened])
    return pixels.pin_memory() if on_gpu else pixels


def cached_features(
    split: Split, backbone: "Backbone", grid: int | None = None, **options: Any
) -> Features:
    """Features of a split through a frozen network, computed the first time they are asked for.

    They are kept in the cache folder under a hash of the weights, the pictures and the settings.
    """

    job = make_job(backbone, grid=grid, **options)
    work = job.work(split)
    key = sha256(work.settings, work.images, work.pictures)
    target = cache_folder() / "features" / f"{key[:32]}.npy"

    def write(path: Path) -> None:
        compute(split, job, path, report=lambda done: None, wait=True)
        finish(path)

    array = kept_array(target, {"work": key}, write)
    return ArrayFeatures(target, array, source=f"{backbone.name} {key}")
