"""Known data sets, however they are stored: which one is this, and what lies in a tree of them.

A data set is known by its numbers of images: Flickr30k has 29,000 for training and 1,000 for the
test, COCO 113,287 (82,783 without restval) and 5,000. A tree is a folder that holds several, each
perhaps in several forms: pictures with Karpathy's split file, and features of regions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.arrays import open_features
from simgrad.data.base import Dataset


@dataclass(frozen=True)
class Benchmark:
    """A data set that papers report on."""

    name: str
    title: str
    train: tuple[int, ...]  # images for training, by edition
    test: tuple[int, ...]  # images of the splits test or testall
    splits: str  # Karpathy's file of captions and splits
    pictures: int  # how many there are in all
    folder: str  # where its pictures lie in a tree


BENCHMARKS = {
    each.name: each
    for each in (
        Benchmark("f8k", "Flickr8k", (6000,), (1000,), "dataset_flickr8k.json", 8091, "images"),
        Benchmark(
            "f30k", "Flickr30k", (29_000, 29_783), (1000,), "dataset_flickr30k.json", 31_783,
            "flickr30k-images",
        ),
        Benchmark(
            "coco", "COCO", (113_287, 82_783), (5000, 1000), "dataset_coco.json", 123_287, "images"
        ),
    )
}  # fmt: skip
IN_TREES = ("f30k", "coco")  # what the papers' tables need; others are named one by one
_SKIPPED = 0.01  # of the training images may be left out: pictures that nobody can read


def benchmark_of(dataset: Dataset) -> Benchmark | None:
    """Which known data set this is, by its numbers of images; None: another one."""
    train = dataset.splits.get("train")
    tests = {dataset.splits[n].num_images for n in ("test", "testall") if n in dataset.splits}
    for known in BENCHMARKS.values():
        if train is not None and tests & set(known.test) and _about(train.num_images, known):
            return known
    return None


def _about(images: int, known: Benchmark) -> bool:
    return any(whole * (1 - _SKIPPED) <= images <= whole for whole in known.train)


@dataclass
class Tree:
    """Known data sets in a folder."""

    root: Path
    pictures: dict[str, Path] = field(default_factory=dict)  # name -> Karpathy's file
    regions: dict[str, Path] = field(default_factory=dict)  # name -> precomputed folder

    def __bool__(self) -> bool:
        return bool(self.pictures or self.regions)

    @property
    def several(self) -> bool:
        """Whether it is a folder of data sets, not one of them itself."""
        own = [*(file.parent for file in self.pictures.values()), *self.regions.values()]
        return bool(own) and own != [self.root]

    @property
    def names(self) -> tuple[str, ...]:
        """The data sets that are there in some form."""
        return tuple(n for n in IN_TREES if n in self.pictures or n in self.regions)

    def expected(self, name: str, kind: str) -> Path:
        """Where a form of a data set is, or should be: pictures or regions."""
        known = BENCHMARKS[name]
        if kind == "regions":
            return self.regions.get(name, self.root / f"{name}_precomp")
        return self.pictures.get(name, self.root / name / known.splits)


def find_tree(root: str | Path) -> Tree:
    """What lies in a folder and in the two levels below it; nothing is read but heads of files."""
    tree = Tree(Path(root).expanduser())
    for folder in _folders(tree.root):
        for name in IN_TREES:
            file = folder / BENCHMARKS[name].splits
            if file.is_file():
                tree.pictures.setdefault(name, file)
        rows = folder / "train_ims.npy"
        if rows.is_file() and (folder / "train_caps.txt").is_file():
            found = _of_rows(rows)
            if found is not None and found.name in IN_TREES:
                tree.regions.setdefault(found.name, folder)
    return tree


def _folders(root: Path) -> Iterator[Path]:
    """The folder and two levels below it; pictures lie deeper, or there are too many of them."""
    yield root
    for child in _inside(root):
        yield child
        yield from _inside(child)


def _inside(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if not p.suffix and p.is_dir())[:100]


def _of_rows(file: Path) -> Benchmark | None:
    """By the rows of training features of regions, one for each image or for each caption."""
    try:
        array = open_features(file)
    except InputError:
        return None
    if array.ndim != 3:
        return None
    for known in BENCHMARKS.values():
        if _about(len(array), known) or (len(array) % 5 == 0 and _about(len(array) // 5, known)):
            return known
    return None
