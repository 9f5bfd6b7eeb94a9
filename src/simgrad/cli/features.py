"""`simgrad features`: compute image features once."""

import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import tyro

from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.data.log import Log
from simgrad.data.opening import open_logged
from simgrad.data.transforms import named
from simgrad.models.networks.backbones import backbone as make_backbone
from simgrad.runs.feature_files import Written, write_features
from simgrad.runs.features import Job, make_job


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
) -> dict[str, Any]:
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
    written = write_features(dataset, log, data, job, folder, limit)
    rows = [_row(name, one, job) for name, one in written.items()]
    print_table(["split", "images", "each", "on disk", "images/s"], rows)
    if limit is None:
        where = f"--data {shlex.quote(data)} --features {shlex.quote(str(folder))}"
        say(f"\n{folder}: ready.", f"next: simgrad train {where}")
    else:
        say(f"\n{folder}: a try with --limit; training needs the features of all images.")
    return {
        "folder": str(folder),
        "shape": list(job.shape),
        "images": {name: one.images for name, one in written.items()},
    }


def _row(name: str, one: Written, job: Job) -> list[str]:
    return [
        name,
        f"{one.images:,}",
        "x".join(map(str, job.shape)),
        f"{one.path.stat().st_size / 1e6:,.1f} MB",
        f"{one.computed / one.seconds:,.1f}" if one.computed else "–",
    ]


def _folder_name(data: str, backbone: str, grid: int | None) -> str:
    source = Path(data).expanduser()
    name = source.resolve().name if source.exists() else data
    cells = f"-grid{grid}" if grid else ""
    return re.sub(r"[^\w.+-]+", "-", f"{name}-{backbone}{cells}").strip("-")
