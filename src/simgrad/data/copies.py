"""Pictures that stand in a data set twice: which, and whether they lie on both sides of a split.

Who is tested on a picture that was trained on is tested on memory. Splits that came with the data
are never changed: a note says it. Where we drew the splits, copies are a problem like others: a
skip list leaves out the one that is trained on, or else validated on, and what is tested stays.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.text import counted, listed
from simgrad.data.base import Dataset
from simgrad.data.layouts.building import HASHED_NOTE
from simgrad.data.likeness import connected, signs_of
from simgrad.data.log import DataProblem
from simgrad.data.picture_files import FilePictures
from simgrad.data.resplit import joined

_MANY = 20_000  # pictures that are compared without being asked
_KEPT = ("test", "val", "train")  # the side that keeps its copy, first


@dataclass(frozen=True)
class Copies:
    """Groups of pictures that are one, each a list of (split, image's name)."""

    groups: tuple[tuple[tuple[str, str], ...], ...] = ()
    broken: tuple[DataProblem, ...] = ()  # pictures that only decoding shows to be damaged
    ours: bool = False  # whether we drew the splits
    note: str = ""  # why nothing was looked at

    @property
    def across(self) -> list[tuple[tuple[str, str], ...]]:
        """Those that lie in more than one split."""
        return [group for group in self.groups if len({split for split, _ in group}) > 1]

    def problems(self) -> list[DataProblem]:
        """Of splits that we drew: what is left out, so that each group lies on one side."""
        found = []
        for group in self.across if self.ours else ():
            side = min((split for split, _ in group), key=_KEPT.index)
            like = next(name for split, name in group if split == side)
            for split, name in group:
                if split != side:
                    what = f"the same picture as {like[:80]} of '{side}'."
                    found.append(
                        DataProblem(name, "", what, split, image=name, skippable=True, kind="copy")
                    )
        return found

    def notes(self) -> list[str]:
        """Sentences about these copies."""
        told = [self.note] if self.note else []
        extra = sum(len(group) - 1 for group in self.groups)
        if not extra:
            return told
        names = " = ".join(name[:60] for _, name in self.groups[0])
        told.append(f"{counted(extra, 'picture')} a second time ({names}{', ...' * (extra > 1)})")
        if self.across and not self.ours:
            sides: dict[str, int] = defaultdict(int)
            for group in self.across:
                sides[listed([s for s in reversed(_KEPT) if s in dict(group)], "and")] += 1
            where = "; ".join(f"{n:,} in {both}" for both, n in sides.items())
            told.append(
                f"the same picture on both sides of a split: {where}. The splits came with the "
                "data and stay as they are; results on such pictures are memory"
            )
        return told


def find_copies(
    dataset: Dataset, known: frozenset[str] = frozenset(), every: bool = False
) -> Copies:
    """Compare all pictures with each other; `known`: images that cannot be read anyway.

    Many pictures, and those that are no files, are compared only if `every` is set.
    """
    splits = [dataset.splits[name] for name in reversed(_KEPT) if name in dataset.splits]
    pictures = [split.pictures for split in splits]
    if dataset.identity is not None or not splits or None in pictures:
        return Copies()
    count = sum(split.num_images for split in splits)
    if not every and (count > _MANY or not _files(dataset)):
        return Copies(note="not looked for pictures that stand here twice (`thorough` does)")
    whole = joined(splits)
    signs = signs_of(whole)
    sides = np.repeat([s.name for s in splits], [s.num_images for s in splits]).tolist()
    broken = []
    for row in np.flatnonzero(~signs.any(1)).tolist():
        name = whole.image_names[row]
        if name in known or whole.pictures is None:
            continue
        try:
            whole.pictures.picture(row)  # one of a single colour is like no other, but whole
        except InputError as error:
            file = str(whole.pictures.path(row) or sides[row])
            what = str(error).removeprefix(file).lstrip(":, ")
            broken.append(DataProblem(file, "", what, sides[row], image=name, skippable=True,
                                      kind="broken"))  # fmt: skip
    groups = defaultdict(list)
    for row, unit in enumerate(connected(signs).tolist()):
        groups[unit].append((sides[row], whole.image_names[row]))
    several = (tuple(group) for group in groups.values() if len({n for _, n in group}) > 1)
    return Copies(tuple(several), tuple(broken), HASHED_NOTE in dataset.notes)


def _files(dataset: Dataset) -> bool:
    """Whether pictures are files, of which some may have been left out."""
    found = (split.pictures for split in dataset.splits.values())
    return all(isinstance(getattr(one, "pictures", one), FilePictures) for one in found)
