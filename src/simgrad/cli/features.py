"""`simgrad features`: compute image features once."""

import re
import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import numpy as np
import tyro

from simgrad.core.console import print_table, progress, say
from simgrad.core.derived import write_checked
from simgrad.core.errors import InputError
from simgrad.data.base import Dataset
from simgrad.data.feature_folder import HEADER
from simgrad.data.log import Log
from simgrad.data.opening import absolute, open_logged
from simgrad.data.transforms import named
from simgrad.models.networks.backbones import backbone as make_backbone
from simgrad.runs.begun import entry, finish
from simgrad.runs.features import Job, compute, make_job

_SECONDS_BETWEEN_LINES = 30.0


def features(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    *,
    backbone: str = "efficientnet-lite0",
    weights: str | None = None,
    grid: int | None = None,
    transform: str | None = None,
    size: int | None = None,
    half: bool = False,
    device: str = "auto",
    output: Path | None = None,
    batch: int = 64,
    workers: int | None = None,
    limit: int | None = None,
    skip: Path | None = None,
) -> None:
    """Compute image features: one vector per picture, or a grid of cells.

    If interrupted, run the same command again to resume. Features that still fit the data are kept;
    damaged or outdated ones are computed again.

    Args:
        data: a folder or file in a known layout, or a spec such as 'scenes(train=100)'
        backbone: efficientnet-lite0|1|2, resnet50|101|152, vgg19, vit-b16, swin-b,
            transformers:NAME_OR_FOLDER or timm:NAME
        weights: a file or folder of weights instead of the published ones; 'random' for none
        grid: cells per side, for models that read regions; 7 gives 49 cells
        transform: how pictures are prepared; by default as the network was trained, which usually
            crops. 'plain' squeezes the whole picture into the square, so that nothing at the edge
            is lost
        size: side of that square in pixels; by default the network's own
        half: store 16-bit numbers: half the space
        device: auto, cpu, cuda, cuda:N or mps
        output: the folder to write (default: features/DATA-BACKBONE)
        batch: pictures per batch
        workers: threads that decode pictures; by default one per core
        limit: only the first N images of each split, to try it out; a run without this option
            replaces them
        skip: a list written by `simgrad datasets --fix`; stored with the features
    """

    if limit is not None and limit < 1:
        raise InputError(f"--limit is 1 or more, not {limit}.")
    log = Log.read(skip)
    dataset = open_logged(data, log)
    network = make_backbone(backbone, weights)
    network.transform = transform or network.transform
    network.size = size or network.size
    named(network.transform, train=False, size=network.size)  # says what is wrong before any work
    job = make_job(network, grid=grid, half=half, batch=batch, device=device, workers=workers)
    folder = output or Path("features") / _folder_name(data, backbone, grid)
    rows = [_split(dataset, name, job, folder, limit) for name in dataset.splits]
    write_checked(folder / HEADER, _header(dataset, data, job, folder, limit, log))
    for name in dataset.splits:
        finish(folder / f"{name}.npy")
    print_table(["split", "images", "each", "on disk", "images/s"], rows)
    if limit is None:
        where = f"--data {shlex.quote(data)} --features {shlex.quote(str(folder))}"
        say(f"\n{folder}: ready.", f"next: simgrad train {where}")
    else:
        say(f"\n{folder}: a try with --limit; training needs the features of all images.")


def _split(dataset: Dataset, name: str, job: Job, folder: Path, limit: int | None) -> list[str]:
    split = dataset.splits[name]
    total = split.num_images if limit is None else min(limit, split.num_images)
    target = folder / f"{name}.npy"
    started = monotonic()
    lines = Lines(name, total)
    with progress() as bar:
        task = bar.add_task(f"{name} through {job.backbone.name}", total=total)

        def report(done: int) -> None:
            bar.update(task, completed=done)
            lines.report(done)

        computed = compute(split, job, target, limit=limit, report=report)
    seconds = monotonic() - started
    return [
        name,
        f"{total:,}",
        "x".join(map(str, job.shape)),
        f"{target.stat().st_size / 1e6:,.1f} MB",
        f"{computed / seconds:,.1f}" if computed else "–",
    ]


class Lines:
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
        "splits": {
            name: entry(folder / f"{name}.npy", list(split.image_names[:limit]))
            for name, split in dataset.splits.items()
        },
    }


def _folder_name(data: str, backbone: str, grid: int | None) -> str:
    source = Path(data).expanduser()
    name = source.resolve().name if source.exists() else data
    cells = f"-grid{grid}" if grid else ""
    return re.sub(r"[^\w.+-]+", "-", f"{name}-{backbone}{cells}").strip("-")
