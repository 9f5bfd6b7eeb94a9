"""A folder of features: every split of a data set, and a header that says how they were made."""

import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from simgrad.core.console import progress
from simgrad.core.derived import write_checked
from simgrad.data.base import Dataset
from simgrad.data.feature_folder import HEADER
from simgrad.data.log import Log
from simgrad.data.opening import absolute
from simgrad.data.resplit import look_alikes
from simgrad.runs.begun import entry, finish
from simgrad.runs.features import Job, compute

_SECONDS_BETWEEN_LINES = 30.0


@dataclass(frozen=True)
class Written:
    """The features of one split."""

    path: Path
    images: int
    computed: int  # of them, now; the others were there
    seconds: float


def write_features(
    dataset: Dataset, log: Log, data: str, job: Job, folder: Path, limit: int | None = None
) -> dict[str, Written]:
    """Compute the features of every split, or go on with them; by split, what was written.

    `data` is what the data set was opened from, and `log` what it was opened with.
    """
    found = {name: _split(dataset, name, job, folder, limit) for name in dataset.splits}
    write_checked(folder / HEADER, _header(dataset, data, job, folder, limit, log))
    for one in found.values():
        finish(one.path)
    return found


def _split(dataset: Dataset, name: str, job: Job, folder: Path, limit: int | None) -> Written:
    split = dataset.splits[name]
    total = split.num_images if limit is None else min(limit, split.num_images)
    target = folder / f"{name}.npy"
    started = monotonic()
    lines = FeatureLines(name, total)
    with progress() as bar:
        task = bar.add_task(f"{name} through {job.backbone.name}", total=total)

        def report(done: int) -> None:
            bar.update(task, completed=done)
            lines.report(done)

        computed = compute(split, job, target, limit=limit, report=report)
    return Written(target, total, computed, monotonic() - started)


class FeatureLines:
    """Progress where there is no terminal: a line now and then, for whoever reads the log."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.shown = name, total, not sys.stderr.isatty()
        self.begun = self.told = monotonic()
        self.first: int | None = None  # rows that an earlier run had done

    def report(self, done: int) -> None:
        self.first = done if self.first is None else self.first
        now = monotonic()
        if not self.shown or now - self.told < _SECONDS_BETWEEN_LINES or done == self.first:
            return
        self.told = now
        rate = (done - self.first) / (now - self.begun)
        left = (self.total - done) / rate / 60
        told = f"{self.name}: {done:,} of {self.total:,} images, {rate:,.1f} a second, "
        print(f"{told}about {left:,.0f} min left", file=sys.stderr, flush=True)


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
