"""New splits of a data set: other images are tested, validated on and trained on.

    new(draw=3, test=1000, val=1000, pool=train)

A random order of the pool is cut into parts of `test` images: the first draws test disjoint parts,
later ones parts of a second order, and so on. Validation images are drawn from the rest of the
pool; all else is trained on. Images of splits that are not in the pool are always trained on: a
test split that was looked at can be retired that way.

An image goes with all its captions. Near-duplicates are one unit of the draw; where a cut would go
through one, what is not tested (or else validated on) of it is left out. Where the pictures are not
there, features remember which of them look alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.core.spec import Registry, print_spec, setting, split_spec, with_values
from simgrad.data.base import Dataset, Features, Pictures, Rows, Split, with_splits
from simgrad.data.likeness import units_of
from simgrad.data.subset import take

if TYPE_CHECKING:
    from PIL.Image import Image

_NAMES = ("train", "val", "test")
_TRAIN, _VAL, _TEST, _LEFT_OUT = range(4)
_known: Registry["NewSplit"] = Registry("resplit", "docs/training.md")


@_known.declare("new", paper="", description="another train, val and test split of the same data")
@dataclass(frozen=True)
class NewSplit:
    """Which split is drawn."""

    name: ClassVar[str]

    draw: int = setting(1, "which draw, from 1", at_least=1, below=1e6)
    test: int | None = setting(None, "images to test; by default as before", at_least=1)
    val: int | None = setting(None, "images to validate on; by default as before", at_least=1)
    pool: str = setting("train+val+test", "splits that these are drawn from, joined by +")
    seed: int = setting(0, "of all draws", at_least=0, below=2**31)

    def __str__(self) -> str:
        return print_spec(self)

    @property
    def sources(self) -> tuple[str, ...]:
        """The splits of the pool."""
        return tuple(part.strip() for part in self.pool.split("+"))


def read_resplit(text: str) -> NewSplit:
    """`new(draw=3, test=1000)` -> what it says; an error says how it is written."""
    if split_spec(text, "resplit")[0] != NewSplit.name:
        raise InputError(f"resplit: written new(draw=2, test=1000, pool=train), not {text!r:.80}.")
    told = _known.parse(text)
    wrong = [name for name in told.sources if name not in _NAMES]
    if wrong or len(set(told.sources)) < len(told.sources):
        raise InputError(f"resplit: pool is of {', '.join(_NAMES)}, joined by +, not {told.pool}.")
    return told


def with_draw(text: str | None, draw: int) -> str:
    """The same way to split, another draw."""
    return with_values(text or NewSplit.name, {"draw": draw}, "resplit")


def resplit(dataset: Dataset, told: NewSplit) -> Dataset:
    """The data set with train, val and test drawn anew; other splits are not in it."""
    parts = [dataset.split(name) for name in _NAMES]
    whole = joined(parts)
    units = _units(dataset, parts, whole)
    pool = np.repeat([name in told.sources for name in _NAMES], [p.num_images for p in parts])
    sizes = {"test": told.test or parts[2].num_images, "val": told.val or parts[1].num_images}
    use = assigned(units, pool, **sizes, draw=told.draw, seed=told.seed, where=dataset.name)
    every = np.ones(whole.num_captions, dtype=bool)
    splits = [replace(take(whole, use == i, every), name=name) for i, name in enumerate(_NAMES)]
    notes = [f"splits drawn anew: {told}"]
    left_out = int((use == _LEFT_OUT).sum())
    if left_out:
        notes.append(f"{left_out} near-duplicates of val and test images are left out")
    if dataset.identity is None and whole.pictures is None and dataset.alike is None:
        notes.append("there are no pictures, so near-duplicates were not looked for")
    identity = dataset.identity and f"{dataset.identity} resplit={told}"
    found = with_splits(dataset, splits)
    return replace(found, identity=identity, notes=(*dataset.notes, *notes))


def _units(dataset: Dataset, parts: Sequence[Split], whole: Split) -> Rows:
    """(images,) near-duplicates have one number: by the pictures, or as features remember them."""
    if dataset.identity is not None:
        # What is generated has no duplicates, and drawn scenes look alike on a thumbnail.
        return np.arange(whole.num_images)
    if whole.pictures is not None or dataset.alike is None:
        return units_of(whole)
    units = np.arange(whole.num_images)
    place = {
        key: k for k, key in enumerate((part.name, n) for part in parts for n in part.image_names)
    }
    for several in dataset.alike:
        there = [place[one] for one in several if one in place]
        units[there] = min(there, default=0)
    # Numbered as they come, as by the pictures: the same images are drawn.
    numbered: Rows = np.unique(units, return_inverse=True)[1]
    return numbered


def look_alikes(dataset: Dataset) -> tuple[tuple[tuple[str, str], ...], ...] | None:
    """Images that look alike, as (split, name); None where there are no pictures to look at."""
    parts = list(dataset.splits.values())
    if dataset.identity is not None or any(part.pictures is None for part in parts):
        return None
    units = units_of(joined(parts))
    names = [(part.name, name) for part in parts for name in part.image_names]
    several = np.flatnonzero(np.bincount(units) > 1)
    return tuple(tuple(names[row] for row in np.flatnonzero(units == one)) for one in several)


def assigned(
    units: Rows, pool: npt.NDArray[np.bool_], test: int, val: int, draw: int, seed: int, where: str
) -> Rows:
    """(images,) what each image is for: 0 train, 1 val, 2 test, 3 left out."""
    rows = np.flatnonzero(pool)
    if len(rows) < test + val:
        raise InputError(
            f"{where}: resplit: {test:,} test and {val:,} val images are asked of a pool of "
            f"{len(rows):,}."
        )
    order, part = divmod(draw - 1, len(rows) // test)
    tested = _in_order(rows, units, [seed, 0, order])[part * test : (part + 1) * test]
    rest = rows[~np.isin(units[rows], units[tested])]
    validated = _in_order(rest, units, [seed, 1, draw])[:val]
    if len(validated) < val:
        raise InputError(f"{where}: resplit: too many near-duplicates for {val:,} val images.")
    use = np.full(len(units), _TRAIN)
    use[np.isin(units, units[np.concatenate([tested, validated])])] = _LEFT_OUT
    use[validated] = _VAL
    use[tested] = _TEST
    return use


def _in_order(rows: Rows, units: Rows, seed: Sequence[int]) -> Rows:
    """In an order by chance; images of one unit stand together."""
    places = np.random.default_rng(seed).permutation(len(units))
    return rows[np.argsort(places[units[rows]], kind="stable")]


# -- splits put together


def joined(splits: Sequence[Split]) -> Split:
    """Splits of one data set as one."""
    sizes = [split.num_images for split in splits]
    starts = np.cumsum([0, *sizes])
    captions = np.cumsum([0, *(split.num_captions for split in splits)])
    pairing = [s.image_of_caption + start for s, start in zip(splits, starts, strict=False)]
    pictures = [s.pictures for s in splits if s.pictures is not None]
    features = [s.features for s in splits if s.features is not None]
    ids = [s.caption_ids for s in splits if s.caption_ids is not None]
    vectors = [s.caption_vectors for s in splits if s.caption_vectors is not None]
    places = [s.caption_places for s in splits if s.caption_places is not None]

    def place(row: int) -> str:
        which = int(np.searchsorted(captions, row, side="right")) - 1
        return places[which](row - int(captions[which]))

    def whole(found: Sequence[object]) -> bool:
        return len(found) == len(splits)

    return Split(
        splits[0].dataset,
        "+".join(split.name for split in splits),
        [caption for split in splits for caption in split.captions],
        np.concatenate(pairing),
        [name for split in splits for name in split.image_names],
        JoinedPictures(tuple(pictures), starts) if whole(pictures) else None,
        JoinedFeatures(tuple(features), starts) if whole(features) else None,
        [one for several in ids for one in several] if whole(ids) else None,
        place if whole(places) else None,
        caption_vectors=JoinedFeatures(tuple(vectors), captions) if whole(vectors) else None,
    )


@dataclass(frozen=True)
class JoinedPictures:
    """The pictures of several splits, one after another."""

    parts: tuple[Pictures, ...]
    starts: Rows  # (parts + 1,)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def _of(self, row: int) -> tuple[Pictures, int]:
        which = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.parts[which], row - int(self.starts[which])

    def picture(self, row: int) -> "Image":
        part, own = self._of(row)
        return part.picture(own)

    def path(self, row: int) -> Path | None:
        part, own = self._of(row)
        return part.path(own)

    def content(self, verify: bool = False) -> str:
        return sha256(*(part.content(verify) for part in self.parts))

    @property
    def root(self) -> Path | None:
        roots = {part.root for part in self.parts}
        return roots.pop() if len(roots) == 1 else None


@dataclass(frozen=True)
class JoinedFeatures:
    """The features of several splits, one after another."""

    parts: tuple[Features, ...]
    starts: Rows  # (parts + 1,)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def header(self) -> str:
        return self.parts[0].header

    def content(self, verify: bool = False) -> str:
        return sha256(*(part.content(verify) for part in self.parts))

    def rows(self, indices: Rows) -> npt.NDArray[np.float32]:
        indices = np.asarray(indices)
        found = np.empty((len(indices), *self.shape), dtype=np.float32)
        for part, start, end in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            own = (indices >= start) & (indices < end)
            if own.any():
                found[own] = part.rows(indices[own] - start)
        return found
