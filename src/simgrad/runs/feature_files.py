"""A folder of features: every split of a data set, and a header that says how they were made."""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from simgrad.core.console import reporting
from simgrad.core.derived import write_checked
from simgrad.data.base import Dataset
from simgrad.data.feature_folder import HEADER
from simgrad.data.log import Log
from simgrad.data.opening import absolute
from simgrad.data.resplit import look_alikes
from simgrad.runs.begun import entry, finish
from simgrad.runs.features import Job, compute


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
    with reporting(f"{name} through {job.backbone.name}") as report:
        computed = compute(split, job, target, limit=limit, report=lambda done: report(done, total))
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
