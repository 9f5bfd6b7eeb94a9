"""A folder of features: every split of a data set, and a header that says how they were made."""

import math
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from simgrad.core.console import reporting
from simgrad.core.derived import write_checked
from simgrad.data.arrays import HEADER
from simgrad.data.base import Dataset, Split
from simgrad.data.log import Log
from simgrad.data.opening import absolute
from simgrad.data.resplit import look_alikes
from simgrad.runs.begun import entry, finish
from simgrad.runs.features import Job, compute

_TRIED = 10.0  # seconds, after which the pace tells how long all pictures take


@dataclass(frozen=True)
class Written:
    """The features of one split."""

    path: Path
    images: int
    computed: int  # of them, now; the others were there
    seconds: float


class TooSlow(Exception):
    """Features would take longer than there is time; `seconds`: that they would take in all."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"about {seconds:.0f} s")
        self.seconds = seconds


class _Deadline:
    """Stops once the pace shows that the work does not end in time."""

    def __init__(self, images: int, within: float) -> None:
        self._images, self._within, self._begun = images, within, monotonic()
        self._there: dict[str, int] = {}  # rows of a split that were there when it began
        self._done: dict[str, int] = {}

    def look(self, split: str, done: int) -> None:
        self._there.setdefault(split, done)
        self._done[split] = done
        there, spent = sum(self._there.values()), monotonic() - self._begun
        now = sum(self._done.values()) - there
        if now and spent > min(_TRIED, self._within):
            needed = spent * (self._images - there) / now
            if needed > self._within:
                raise TooSlow(needed)


def write_features(
    dataset: Dataset,
    log: Log,
    data: str,
    job: Job,
    folder: Path,
    limit: int | None = None,
    within: float = math.inf,
) -> dict[str, Written]:
    """Compute the features of every split, or go on with them; by split, what was written.

    `data` is what the data set was opened from, and `log` what it was opened with. TooSlow is
    raised as soon as the first pictures show that all of them take longer than `within` seconds;
    what was computed is kept.
    """
    images = sum(_rows(split, limit) for split in dataset.splits.values())
    deadline = _Deadline(images, within)
    found = {name: _split(dataset, name, job, folder, limit, deadline) for name in dataset.splits}
    write_checked(folder / HEADER, _header(dataset, data, job, folder, limit, log))
    for one in found.values():
        finish(one.path)
    return found


def _rows(split: Split, limit: int | None) -> int:
    return split.num_images if limit is None else min(limit, split.num_images)


def _split(
    dataset: Dataset, name: str, job: Job, folder: Path, limit: int | None, deadline: _Deadline
) -> Written:
    split = dataset.splits[name]
    total = _rows(split, limit)
    target = folder / f"{name}.npy"
    started = monotonic()
    with reporting(f"{name} through {job.backbone.name}") as report:

        def told(done: int) -> None:
            report(done, total)
            deadline.look(name, done)

        computed = compute(split, job, target, limit=limit, report=told)
    return Written(target, total, computed, monotonic() - started)


def _header(
    dataset: Dataset, data: str, job: Job, folder: Path, limit: int | None, log: Log
) -> dict[str, Any]:
    return {
        "layout": "simgrad-features",
        "data": absolute(data),
        "skip": log.skipped,
        "limit": limit,
        "backbone": job.backbone.name,
        "weights_sha256": job.weights_sha256,
        "grid": job.grid,
        "transform": job.backbone.transform,
        "size": job.backbone.size,
        "dtype": np.dtype(np.float16 if job.half else np.float32).name,
        "fingerprint": dataset.fingerprint(),
        "alike": look_alikes(dataset) if limit is None else None,
        "splits": {
            name: entry(folder / f"{name}.npy", list(split.image_names[:limit]))
            for name, split in dataset.splits.items()
        },
    }
