"""Data: pictures to tensors and to features beside a plain DataLoader; opening COCO's regions.

    python benchmarks/data.py            # two cores
    python benchmarks/data.py --cuda     # features through a GPU

Pictures are those of SIMGRAD_FLICKR8K (a folder with images/) where it is set; otherwise scenes,
enlarged to 500 x 375 with a camera's grain, as JPEG files in a temporary folder. The plain way is a
DataLoader over Pillow with a process per core, and the network as it is in float32; onnxruntime
gets the same loader, and the network as PyTorch exports it.
COCO's 33 GB of region features are a file of holes: it has the size, and no space is taken.
"""

import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import torch
from common import MIB, Row, command, goal, in_turn, in_worker, installed, peak_above, row, timed
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from simgrad.data import IndexBatch, Source, open_dataset
from simgrad.data.base import Split
from simgrad.data.picture_files import FilePictures

SIZE, BATCH = 224, 32
COCO = 113_287  # images of the train split, with five captions each
START = "of a second or two, starting the processes that read is a part; theirs are copies of one"
UNIT = "{:,.0f} images/s"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# -- the plain way


class Plain(Dataset[Tensor]):
    """Pictures as everybody reads them: Pillow, a random crop and a flip, or the middle."""

    def __init__(self, files: list[Path], train: bool) -> None:
        self.files, self.train = files, train

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        picture = Image.open(self.files[index]).convert("RGB")
        picture = _random_crop(picture) if self.train else _middle(picture)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def _random_crop(picture: Image.Image) -> Image.Image:
    width, height = picture.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            break
    else:
        w = h = min(width, height)
    left, top = random.randint(0, width - w), random.randint(0, height - h)
    picture = picture.crop((left, top, left + w, top + h))
    picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return picture


def _middle(picture: Image.Image) -> Image.Image:
    scale = (SIZE + 32) / min(picture.size)
    picture = picture.resize([round(side * scale) for side in picture.size])
    left, top = ((side - SIZE) // 2 for side in picture.size)
    return picture.crop((left, top, left + SIZE, top + SIZE))


# -- the pictures


@contextmanager
def pictures(count: int) -> Iterator[tuple[list[Path], str]]:
    """So many picture files, and what they are."""
    photos = os.environ.get("SIMGRAD_FLICKR8K")
    if photos:
        files = sorted((Path(photos) / "images").glob("*.jpg"))[:count]
        if files:
            yield (files * -(-count // len(files)))[:count], "Flickr8k"
            return
    with tempfile.TemporaryDirectory() as folder:
        made = [_photo_like(Path(folder), row) for row in range(24)]
        yield (made * -(-count // len(made)))[:count], "scenes"


def _photo_like(folder: Path, row: int) -> Path:
    split = open_dataset("scenes(train=24, size=128)").split("train")
    assert split.pictures is not None
    large = split.pictures.picture(row).resize((500, 375), Image.Resampling.BICUBIC)
    grain = np.random.default_rng(row).normal(0, 6, (375, 500, 3))
    noisy = np.clip(np.asarray(large) + grain, 0, 255).astype(np.uint8)
    path = folder / f"{row}.jpg"
    Image.fromarray(noisy).save(path, quality=92)
    return path


def _split(files: list[Path]) -> Split:
    names = [str(file) for file in files]
    captions = ["a picture"] * len(files)
    owner = np.arange(len(files))
    return Split("files", "train", captions, owner, names, FilePictures(Path("/"), names))


# -- rows


def augment_row(files: list[Path], kind: str, cores: int) -> list[Row]:
    """Files to augmented tensors, a pass over all of them."""
    from simgrad.data.transforms import named
    from simgrad.data.vocabulary import Vocabulary

    transform = named("vse++/imagenet", train=True, size=SIZE)
    words = Vocabulary.build(["a picture"], min_count=1)
    source = Source(_split(files), words, transform, workers=cores)
    plan = []
    for start in range(0, len(files), BATCH):
        at = np.arange(start, min(start + BATCH, len(files)))
        plan.append(IndexBatch(at, at, np.arange(len(at))))
    plain = DataLoader(
        Plain(files, train=True), BATCH, num_workers=cores, persistent_workers=True
    )  # fmt: skip
    sum(len(batch) for batch in plain)  # its processes are started once
    best = in_turn(
        {
            "plain": lambda: sum(len(batch) for batch in plain),
            "ours": lambda: sum(len(batch.images) for batch in source.batches(plan)),
        }
    )
    return _pair("decode + augment", f"{kind}, {cores} workers", len(files), best, "")


def features_rows(files: list[Path], kind: str, cores: int, device: str) -> list[Row]:
    """Files to features on disk, through EfficientNet-Lite0."""
    from simgrad.models.networks.backbones import backbone
    from simgrad.runs.features import compute, make_job

    network = backbone("efficientnet-lite0", weights="random").eval()
    split, job = _split(files), make_job(network, device=device, workers=cores)
    network = network.to(device)

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            compute(split, job, Path(folder) / "train.npy", report=lambda done: None)

    def plain() -> None:
        loader = DataLoader(Plain(files, train=False), 64, num_workers=cores)
        # The network standardises by itself: what it is fed costs the same.
        with torch.no_grad():
            found = [network.pooled(batch.to(device)).cpu() for batch in loader]
        assert sum(map(len, found)) == len(files)

    if device == "cuda":  # kernels are loaded, and algorithms chosen, once
        for quick in (network, job.backbone):
            quick.pooled(torch.rand(64, 3, SIZE, SIZE, device=device))
    ways: dict[str, Callable[[], None]] = {"ours": ours, "plain": plain}
    if device == "cpu" and installed("onnxruntime", "features by onnxruntime"):
        compiled = _exported(network, cores)

        def theirs() -> None:
            loader = DataLoader(Plain(files, train=False), 64, num_workers=cores)
            # Two at a time, as ours takes them: larger pieces leave the cache there, too.
            found = [len(compiled(piece)) for batch in loader for piece in batch.split(2)]
            assert sum(found) == len(files)

        ways["onnxruntime"] = theirs
    # Of a few seconds, what is loaded or reserved on first use would be a large part.
    best = in_turn(ways, 3 if device == "cuda" else 2, device)
    wanted = "" if device == "cuda" else ">= 25 images/s"
    setting = f"{kind}, lite0, {device}"
    rows = _pair("decode + features", setting, len(files), best, wanted)
    if "onnxruntime" in best:
        rows.append(
            _beside("decode + features / onnxruntime", setting, len(files), best, "onnxruntime")
        )
    return rows


def _exported(network: Any, cores: int) -> Callable[[Tensor], Any]:
    """The network through onnxruntime."""
    import onnxruntime

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixels: Tensor) -> Any:
            return self.network.pooled(pixels)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        example, many = torch.rand(2, 3, SIZE, SIZE), torch.export.Dim("many", min=1, max=64)
        torch.onnx.export(Vectors().eval(), (example,), path, input_names=["pixels"],
                          dynamic_shapes=({0: many},), dynamo=True, verbose=False)  # fmt: skip
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda pixels: session.run(None, {"pixels": pixels.numpy()})[0]


def _pair(what: str, setting: str, count: int, best: dict[str, float], wanted: str) -> list[Row]:
    speed = count / best["ours"]
    aim = goal(wanted, speed >= 25) if wanted else {}
    return [
        row(what, setting, seconds=best["ours"], figure=speed, unit=UNIT, **aim),
        _beside(f"{what} / plain DataLoader", setting, count, best, "plain"),
    ]


def _beside(name: str, setting: str, count: int, best: dict[str, float], peer: str) -> Row:
    ratio = best[peer] / best["ours"]
    why = START if "cuda" in setting else ""
    return row(name, setting, seconds=best[peer], figure=count / best[peer], unit=UNIT,
               ratio=ratio, **goal(">= 1x", ratio >= 0.95, why))  # fmt: skip


def coco_rows(quick: bool) -> list[Row]:
    """Opening 33 GB of regions with their captions, and reading a batch of them."""
    images = 5000 if quick else COCO
    with tempfile.TemporaryDirectory() as folder:
        shape = (images, 36, 2048)
        array = np.lib.format.open_memmap(
            Path(folder) / "train_ims.npy", "w+", np.dtype(np.float32), shape
        )
        del array  # a file of holes: nothing was written but its head
        with open(Path(folder) / "train_caps.txt", "w", encoding="utf-8") as file:
            file.writelines(
                f"A person with item {k % 997} stands near thing {k % 89} .\n"
                for k in range(5 * images)
            )
        found = in_worker(__file__, {"folder": folder})
    setting = f"{images:,} x 36 x 2048, {5 * images:,} captions"
    if found is None:
        return [row("open COCO's regions", setting, **goal("runs", False))]
    met = found["seconds"] < 1 and found["peak_mib"] * MIB < 200e6
    return [
        row("open COCO's regions", setting, seconds=found["seconds"], peak_mib=found["peak_mib"],
            **goal("< 1 s, < 191 MiB (200 MB)", met)),
        row("a batch of 128 of them", setting, seconds=found["batch"], peak_mib=found["held"]),
        row("a batch of 128 / plain memory map", setting, seconds=found["plain"],
            ratio=found["plain"] / found["batch"], why="the same read, and a look for NaN"),
    ]  # fmt: skip


def worker(job: dict[str, Any]) -> dict[str, float]:
    """Opening in a process of its own, so that its memory can be told."""
    import simgrad.data.layouts  # noqa: F401  # reading code is not what is measured

    opened: dict[str, Any] = {}
    start = time.perf_counter()
    peak = peak_above(lambda: opened.update(data=open_dataset(job["folder"])))
    seconds = time.perf_counter() - start
    features = opened["data"].split("train").features
    array = np.load(Path(job["folder"]) / "train_ims.npy", mmap_mode="r")
    chance = np.random.default_rng(0)

    def batch() -> Any:
        return np.sort(chance.choice(len(features), 128, replace=False))

    held = peak_above(lambda: features.rows(batch()))
    times: dict[str, list[float]] = {"batch": [], "plain": []}
    for _ in range(5):
        rows = batch()
        times["batch"].append(timed(lambda rows=rows: features.rows(rows)))  # type: ignore[misc]
        rows = batch()
        times["plain"].append(timed(lambda rows=rows: np.array(array[rows])))  # type: ignore[misc]
    best = {name: min(found) for name, found in times.items()}
    return {"seconds": seconds, "peak_mib": peak, "held": held, **best}


def run(quick: bool = False) -> list[Row]:
    """On the CPU."""
    cores = len(os.sched_getaffinity(0))
    with pictures(96 if quick else 480) as (files, kind):
        rows = augment_row(files, kind, cores)
        rows += features_rows(files[: 64 if quick else 256], kind, cores, "cpu")
    return [*rows, *coco_rows(quick)]


def run_cuda(quick: bool = False) -> list[Row]:
    """Features through a GPU, which the decoders must keep busy."""
    cores = len(os.sched_getaffinity(0))
    with pictures(512 if quick else 2048) as (files, kind):
        return features_rows(files, kind, cores, "cuda")


if __name__ == "__main__":
    command(__doc__, run, run_cuda, worker)
