"""Drawn scenes with one caption each to train on: `python results/scenes/dials.py FOLDER`.

What recipes/scenes-dials.yaml reads: the scenes of its first group as files, the first caption of
each scene to train on, all five to validate and to test on.
"""

import argparse
from pathlib import Path

import numpy as np

from simgrad.data import open_dataset
from simgrad.data.base import Split

DATA = "scenes(train=1500, val=200, test=500, features=global)"
NAMES = {"train": "train", "val": "dev", "test": "test"}


def write(split: Split, folder: Path, name: str, each: int | None) -> None:
    """Features and captions; `each`: how many captions of an image, by default all."""
    images = split.image_of_caption
    first = np.concatenate([[0], np.cumsum(np.bincount(images))])[:-1]
    place = np.arange(len(images)) - first[images]
    rows = np.flatnonzero(place < (each or len(images)))
    features = split.features
    assert features is not None
    np.save(folder / f"{name}_ims.npy", features.rows(range(split.num_images)))
    text = "".join(f"{split.captions[row]}\n" for row in rows)
    (folder / f"{name}_caps.txt").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default=DATA)
    told = parser.parse_args()
    told.folder.mkdir(parents=True, exist_ok=True)
    dataset = open_dataset(told.data)
    for split, name in NAMES.items():
        write(dataset.split(split), told.folder, name, 1 if split == "train" else None)
    print(f"wrote {told.folder}")


if __name__ == "__main__":
    main()
