"""An epoch of pictures and captions from tar shards, beside the webdataset library.

    python benchmarks/shards.py
    python benchmarks/shards.py --workers 2 --pairs 8000

The same shards, the same cut of pictures (Pillow), the same tokenizer, the same number of workers;
we read every pair at its offset in an order shuffled over all shards, webdataset reads shards from
end to end and shuffles 1,000 pairs at a time. Its processes are started before the clock, and
our index is made. The files are in the system's cache: a disk is not measured.
"""

import argparse
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import Row, in_turn, installed, print_rows, row

from data import BATCH, SIZE, pictures
from simgrad.data import Sampler, Source, Vocabulary, open_dataset
from simgrad.data.transforms import named

_EACH = 1000  # pairs in a shard
_BUFFER = 1000


def run(quick: bool = False, pairs: int | None = None, workers: int | None = None) -> list[Row]:
    """On the CPU."""
    if not installed("webdataset", "shards"):
        return []
    wanted = pairs or (500 if quick else 4000)
    count = -(-wanted // BATCH) * BATCH  # of the last batch nobody leaves anything out
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    with tempfile.TemporaryDirectory() as folder:
        shards, kind = write(Path(folder) / "data", count)
        os.environ["SIMGRAD_CACHE"] = f"{folder}/cache"
        return measure(
            Path(folder) / "data", shards, f"{count:,} {kind}, {workers} workers", workers
        )


def write(folder: Path, count: int) -> tuple[list[str], str]:
    """Shards of JPEG pictures with a caption each."""
    folder.mkdir()
    shards = []
    with pictures(min(count, 1000)) as (files, kind):
        for start in range(0, count, _EACH):
            shards.append(str(folder / f"train-{start // _EACH:04}.tar"))
            with tarfile.open(shards[-1], "w", format=tarfile.USTAR_FORMAT) as archive:
                for number in range(start, min(start + _EACH, count)):
                    archive.add(files[number % len(files)], f"{number:08}.jpg")
                    caption = folder.parent / "caption.txt"
                    caption.write_text(f"a picture of thing {number % 997} on place {number % 89}")
                    archive.add(caption, f"{number:08}.txt")
    return shards, f"{kind} of 500 x 375" if kind == "scenes" else kind


def measure(folder: Path, shards: list[str], setting: str, workers: int) -> list[Row]:
    """Whole epochs in turn."""
    split = open_dataset(folder).split("train")
    words = Vocabulary.build(split.captions, min_count=1)
    cut = named("vse++/imagenet", train=True, size=SIZE)
    source, sampler = Source(split, words, cut, workers=workers), Sampler(batch=BATCH)
    epochs = iter(range(1000))

    def ours() -> int:
        return sum(len(b.images) for b in source.batches(sampler.epoch(split, next(epochs))))

    theirs = peer(shards, cut, words, workers)
    assert ours() == theirs() == len(split.captions)  # and its processes are there
    best = in_turn({"ours": ours, "theirs": theirs})
    speed, unit = {name: len(split.captions) / best[name] for name in best}, "{:,.0f} pairs/s"
    return [
        row("an epoch of shards", setting, seconds=best["ours"], figure=speed["ours"], unit=unit),
        row("an epoch of shards / webdataset", setting, seconds=best["theirs"],
            figure=speed["theirs"], unit=unit, ratio=best["theirs"] / best["ours"]),
    ]  # fmt: skip


def peer(shards: list[str], cut: Any, words: Any, workers: int) -> Callable[[], int]:
    """As webdataset's own pages write it."""
    import webdataset

    def tensors(sample: tuple[Any, str]) -> tuple[torch.Tensor, list[int]]:
        picture, caption = sample
        return cut(picture, torch.Generator().manual_seed(torch.initial_seed())), words.encode(
            caption
        )

    def joined(batch: list[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        pixels, tokens = zip(*batch, strict=True)
        lengths = torch.tensor([len(one) for one in tokens])
        padded = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.long)
        for place, one in zip(padded, tokens, strict=True):
            place[: len(one)] = torch.tensor(one)
        return torch.stack(pixels), padded, lengths

    read = (
        webdataset.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
        .shuffle(_BUFFER)
        .decode("pil")
        .to_tuple("jpg", "txt")
        .map(tensors)
        .batched(BATCH, collation_fn=joined)
    )
    loader = webdataset.WebLoader(
        read, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )
    return lambda: sum(len(batch[0]) for batch in loader)


def main() -> None:
    """At the size that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small size")
    parser.add_argument("--pairs", type=int, help="how many pairs (default: 4,000)")
    parser.add_argument("--workers", type=int, help="default: the cores")
    options = parser.parse_args()
    print_rows(run(options.quick, options.pairs, options.workers))


if __name__ == "__main__":
    main()
