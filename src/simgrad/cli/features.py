"""`simgrad features`: compute image features once."""

import re
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import numpy as np
import tyro

from simgrad.core.console import print_table, progress, say
from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.data.base import Dataset
from simgrad.data.opening import open_dataset
from simgrad.data.transforms import named
from simgrad.models.networks.backbones import backbone as make_backbone
from simgrad.runs.features import Job, compute, finish, make_job


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
    """Write the features of a data set's pictures: one vector each, or a grid of cells.

    A run that was stopped goes on where it was when it is started again.

    Args:
        data: a folder or file of any known layout, or 'scenes'
        backbone: efficientnet-lite0|1|2, resnet50|101|152, vgg19, vit-b16, swin-b,
            transformers:NAME_OR_FOLDER or timm:NAME
        weights: a file or folder of weights, instead of the published ones; 'random' for none
        grid: cells a side, for models that look at regions; 7 gives 49 cells
        transform: what is done to a picture first; default: as the network was trained, which
            mostly crops. 'plain' squeezes the whole picture into the square: captions speak of
            what stands at the edge, too
        size: side of that square in pixels; default: the network's own
        half: 16-bit numbers on disk: half the space
        device: auto, cpu or cuda
        output: the folder to write; default: features/DATA-BACKBONE
        batch: pictures at a time
        workers: threads that decode; default: one per core
        limit: only so many images of each split, to try it out
        skip: a list written by `simgrad datasets --fix`
    """

    if limit is not None and limit < 1:
        raise InputError(f"--limit is 1 or more, not {limit}.")
    dataset = open_dataset(data, skip=skip)
    network = make_backbone(backbone, weights)
    network.transform = transform or network.transform
    network.size = size or network.size
    named(network.transform, train=False, size=network.size)  # says what is wrong before any work
    job = make_job(network, grid=grid, half=half, batch=batch, device=device, workers=workers)
    folder = output or Path("features") / _folder_name(data, backbone, grid)
    rows = [_split(dataset, name, job, folder, limit) for name in dataset.splits]
    write_json(folder / "features.json", _header(dataset, data, job, limit))
    for name in dataset.splits:
        finish(folder / f"{name}.npy")
    print_table(["split", "images", "each", "on disk", "images/s"], rows)
    if limit is None:
        say(f"\n{folder}: ready. Use it with --features {folder}")
    else:
        say(f"\n{folder}: a try with --limit; training needs the features of all images.")


def _split(dataset: Dataset, name: str, job: Job, folder: Path, limit: int | None) -> list[str]:
    split = dataset.splits[name]
    total = split.num_images if limit is None else min(limit, split.num_images)
    target = folder / f"{name}.npy"
    started = monotonic()
    with progress() as bar:
        task = bar.add_task(f"{name} through {job.backbone.name}", total=total)
        computed = compute(
            split,
            job,
            target,
            limit=limit,
            report=lambda done: bar.update(task, completed=done),
        )
    seconds = monotonic() - started
    return [
        name,
        f"{total:,}",
        "x".join(map(str, job.shape)),
        f"{target.stat().st_size / 1e6:,.1f} MB",
        f"{computed / seconds:,.1f}" if computed else "–",
    ]


def _header(dataset: Dataset, data: str, job: Job, limit: int | None) -> dict[str, Any]:
    path = Path(data).expanduser()
    return {
        "layout": "simgrad-features",
        "data": str(path.resolve()) if path.exists() else data,
        "backbone": job.backbone.name,
        "weights_sha256": job.weights_sha256,
        "grid": job.grid,
        "transform": job.backbone.transform,
        "size": job.backbone.size,
        "dtype": np.dtype(np.float16 if job.half else np.float32).name,
        "fingerprint": dataset.fingerprint(),
        "splits": {
            name: {"file": f"{name}.npy", "images": list(split.image_names[:limit])}
            for name, split in dataset.splits.items()
        },
    }


def _folder_name(data: str, backbone: str, grid: int | None) -> str:
    source = Path(data).expanduser()
    name = source.resolve().name if source.exists() else data
    cells = f"-grid{grid}" if grid else ""
    return re.sub(r"[^\w.+-]+", "-", f"{name}-{backbone}{cells}").strip("-")
