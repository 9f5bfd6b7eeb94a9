"""Every problem of a data set that can be seen without training on it, with its place."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simgrad.core.console import track
from simgrad.core.errors import InputError
from simgrad.core.text import counted
from simgrad.data.arrays import ArrayFeatures
from simgrad.data.base import Dataset, Split
from simgrad.data.copies import Copies, find_copies
from simgrad.data.log import DataProblem
from simgrad.data.picture_files import FilePictures
from simgrad.data.pictures import size_of

_SPLITS = frozenset({"train", "val", "test", "testall"})
# Feature files up to this size are looked at whole; of larger ones, a sample.
_SMALL = 1 << 30
_SAMPLE = 512
_MADE = 32  # pictures made on the fly cannot be damaged files
# Images: of 1,000 to 4,000 photos of Flickr8k no objective was told apart, with three seeds.
_FEW = 1500
# Of 100 images a recall has a standard error of 5 points: more than objectives differ by.
_FEW_ASKED = 100
_SHARED = 0.05  # of the captions, on several images


@dataclass
class Findings:
    """What was looked at and what was wrong with it."""

    problems: list[DataProblem] = field(default_factory=list)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)  # (width, height) -> pictures
    notes: list[str] = field(default_factory=list)
    # By split: captions that repeat another of their image; that stand on more than one image.
    repeated: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    copies: Copies = field(default_factory=Copies)  # pictures that stand here twice


def check(dataset: Dataset, *, thorough: bool = False) -> Findings:
    """Look at every caption, every picture's head and end, and the features; compare pictures.

    `thorough` decodes every picture and reads every feature.
    """
    found = Findings()
    owner: dict[str, str] = {}
    for split in dataset.splits.values():
        found.problems += _split_problems(split)
        found.problems += _caption_problems(split)
        found.repeated[split.name] = _repeated(split)
        found.shared[split.name] = shared_captions(split)
        for name in split.image_names:
            first = owner.setdefault(name, split.name)
            # COCO's test is part of its testall.
            if first != split.name and {first, split.name} != {"test", "testall"}:
                what = f"the image {name[:80]} is in '{first}' too."
                found.problems.append(
                    DataProblem(split.name, "", what, split.name, image=name, skippable=True)
                )
        _check_pictures(split, found, thorough, _SAMPLE if dataset.identity is None else _MADE)
        _check_features(split, found, thorough)
    unreadable = frozenset(p.image for p in found.problems if p.kind and p.image)
    found.copies = find_copies(dataset, unreadable, thorough)
    found.problems += [*found.copies.broken, *found.copies.problems()]
    found.notes += found.copies.notes()
    found.problems.sort(key=lambda problem: not problem.missing)
    return found


def _split_problems(split: Split) -> Iterator[DataProblem]:
    if split.name not in _SPLITS:
        yield DataProblem(
            split.name, "", "an unknown split; it is kept under this name.", split.name
        )
    if not split.num_captions:
        yield DataProblem(split.name, "", "a split without captions.", split.name)
    for row in np.flatnonzero(split.captions_per_image == 0).tolist():
        name = split.image_names[row]
        what = f"the image {name[:80]} has no caption."
        yield DataProblem(split.name, f"image {row}", what, split.name, image=name, skippable=True)


def _caption_problems(split: Split) -> Iterator[DataProblem]:
    for row, caption in enumerate(split.captions):
        what = _wrong(" ".join(caption.split()))
        if what is not None:
            places = split.caption_places
            file = places(row) if places else f"{split.name}, caption {row}"
            name = split.caption_ids[row][:80] if split.caption_ids is not None else "it"
            what = f"{name} {what}."
            yield DataProblem(
                file, "", what, split.name, caption=row, text=caption[:80], skippable=True
            )


def _repeated(split: Split) -> int:
    """Captions that say the same as an earlier one of their image. No harm, so only counted."""
    images = split.image_of_caption.tolist()
    texts = ((image, " ".join(c.split())) for image, c in zip(images, split.captions, strict=True))
    return split.num_captions - len(set(texts))


def shared_captions(split: Split) -> int:
    """Captions whose words, in this order, describe more than one image: false negatives."""
    images = defaultdict(set)
    texts = [" ".join(caption.lower().split()) for caption in split.captions]
    for text, image in zip(texts, split.image_of_caption.tolist(), strict=True):
        images[text].add(image)
    return sum(len(images[text]) > 1 for text in texts)


def portrait(splits: Mapping[str, Split], shared: int) -> list[str]:
    """What a look at the data says about a comparison on them; `shared` of the train captions."""
    told = []
    train, val, test = (splits[name] for name in ("train", "val", "test"))
    if train.num_images < _FEW:
        told.append(
            f"{counted(train.num_images, 'training image', 'are')} few: expect objectives that are "
            "not told apart. More images help more than another objective (results/flickr8k/sizes)."
        )
    if val.num_images < _FEW_ASKED:
        told.append(
            f"{counted(val.num_images, 'validation image', 'are')} few: settings are chosen by "
            f"luck as much as by merit. Give val {_FEW_ASKED} images or more."
        )
    if test.num_images < _FEW_ASKED:
        error = 50 / math.sqrt(max(1, test.num_images))
        told.append(
            f"{counted(test.num_images, 'test image', 'are')} few: a recall of 50% is uncertain by "
            f"about {error:.0f} points. Give test {_FEW_ASKED} images or more."
        )
    share = shared / max(1, train.num_captions)
    if share > _SHARED:
        told.append(
            f"{share:.0%} of the training captions stand on more than one image: in a batch they "
            "are taken for wrong though they fit. docs/negatives.md finds such pairs."
        )
    return told


def _wrong(text: str) -> str | None:
    if not text:
        return "is empty"
    return "has a replacement character (bad encoding)" if "\ufffd" in text else None


def _check_pictures(split: Split, found: Findings, thorough: bool, sample: int) -> None:
    if split.pictures is None:
        return
    rows = range(split.num_images)
    if not thorough and not isinstance(split.pictures, FilePictures):
        rows = range(min(split.num_images, sample))
        if len(rows) < split.num_images:
            found.notes.append(
                f"{split.name}: {len(rows):,} of {split.num_images:,} pictures looked at "
                "(`thorough`: all)"
            )
    for row in track(rows, f"pictures of {split.name}"):
        try:
            size = _size(split, row, thorough)
        except InputError as error:
            name = split.image_names[row]
            path = split.pictures.path(row)
            file = str(path) if path else split.name
            what = str(error).removeprefix(file).lstrip(":, ")
            gone = path is not None and not path.exists()
            found.problems.append(
                DataProblem(
                    file,
                    "",
                    what,
                    split.name,
                    image=name,
                    skippable=True,
                    kind="missing" if gone else "broken",
                )
            )
            continue
        found.sizes[size] = found.sizes.get(size, 0) + 1


def _size(split: Split, row: int, thorough: bool) -> tuple[int, int]:
    pictures = split.pictures
    assert pictures is not None
    if thorough or not isinstance(pictures, FilePictures):
        return pictures.picture(row).size
    try:
        return size_of(pictures.path(row).read_bytes())
    except Exception:
        return pictures.picture(row).size  # its error says more; one that decodes is only odd


def _check_features(split: Split, found: Findings, thorough: bool) -> None:
    features = split.features
    if not isinstance(features, ArrayFeatures):
        return
    rows = np.arange(split.num_images)
    if not thorough and features.array.nbytes > _SMALL:
        rows = np.unique(np.linspace(0, split.num_images - 1, _SAMPLE).astype(np.int64))
        found.notes.append(
            f"{split.name}: {len(rows):,} of {split.num_images:,} rows of features looked at "
            "(`thorough`: all)"
        )
    for start in range(0, len(rows), 256):
        block = rows[start : start + 256]
        at = block if features.row_of_image is None else features.row_of_image[block]
        values = np.asarray(features.array[at], dtype=np.float32).reshape(len(block), -1)
        finite = np.logical_and.reduce(np.isfinite(values), axis=1)
        zero = np.logical_and.reduce(values == 0, axis=1)
        for i in np.flatnonzero(~finite | zero).tolist():
            what = "all features are 0." if finite[i] else "NaN or infinity among the features."
            found.problems.append(_bad_row(split, features.file, int(at[i]), int(block[i]), what))


def _bad_row(split: Split, file: Path, row: int, image: int, what: str) -> DataProblem:
    return DataProblem(
        str(file), f"row {row}", what, split.name, image=split.image_names[image], skippable=True
    )
