"""Found pairs in training and mining: which of them a batch holds, or a list of candidates."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.base import Rows, Split
from simgrad.data.candidates import Candidates, Lists
from simgrad.data.found import read_found, rows_of
from simgrad.data.sampling import IndexBatch, own_size
from simgrad.mining.mine import Mask, without
from simgrad.objectives import objective
from simgrad.runs.recipe import Recipe


class Known(NamedTuple):
    """Pairs (k, 2) of places in a batch."""

    positive: Tensor
    ignored: Tensor

    def applied(self, image_of_caption: Tensor, images: int) -> tuple[Tensor, Tensor | None]:
        """Positives, and what to ignore, as objectives take them."""
        ignored = self.ignored if len(self.ignored) else None
        if not len(self.positive):
            return image_of_caption, ignored
        captions = torch.arange(len(image_of_caption), device=image_of_caption.device)
        shape = (images, len(captions))
        mask = torch.zeros(shape, dtype=torch.bool, device=image_of_caption.device)
        mask[image_of_caption, captions] = True
        mask[self.positive[:, 0], self.positive[:, 1]] = True
        return mask, ignored


@dataclass(frozen=True)
class FoundPairs:
    """Pairs of a training split, to be looked up batch by batch."""

    positive: Rows  # (k,) sorted keys: image * captions + caption
    ignored: Rows
    captions: int

    def within(self, index: IndexBatch, device: torch.device) -> Known:
        """Those of one batch."""
        n, m = own_size(index)
        keys = index.images[:n, None] * self.captions + index.captions[None, :m]
        found = (np.argwhere(_among(keys, known)) for known in (self.positive, self.ignored))
        return Known(*(torch.from_numpy(places).to(device) for places in found))

    def hash(self) -> str:
        """By which the same pairs are known again."""
        return sha256(*(str(keys.tolist()) for keys in (self.positive, self.ignored)))[:16]

    def holds(self, images: Rows, captions: Rows) -> Mask:
        """Whether each pair is one of them, in either sense."""
        keys = images.astype(np.int64) * self.captions + captions
        return _among(keys, self.positive) | _among(keys, self.ignored)


def _among(keys: Rows, known: Rows) -> Mask:
    if not len(known):
        return np.zeros(keys.shape, dtype=np.bool_)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.asarray(known[place] == keys)


def known_pairs(recipe: Recipe, split: Split) -> FoundPairs | None:
    """The pairs that the recipe names; None where it names none."""
    if recipe.found_pairs is None:
        return None
    specs = [spec for spec in (recipe.objective, recipe.first_objective) if spec]
    if recipe.found == "positive" and any(objective(spec).needs_offline for spec in specs):
        raise InputError(
            f"recipe: found: {recipe.objective} weighs one positive of each caption; give "
            "`found: ignore`."
        )
    known = pairs_of(recipe.found_pairs, split, recipe.sure, "recipe: found_pairs: ")
    if recipe.found == "positive":
        return known
    every = np.union1d(known.positive, known.ignored)
    return FoundPairs(every[:0], every, split.num_captions)


def pairs_of(place: str | Path, split: Split, sure: float, asked_by: str = "") -> FoundPairs:
    """The pairs of a split that a file or folder names: those that are right, and unsure ones."""
    rows = rows_of(read_found(place), split, sure, place=f"{asked_by}{place}")
    if not len(rows.right) and not len(rows.unsure):
        raise InputError(
            f"{asked_by}{place} names no pair of the {split.name} split of {split.dataset} that "
            f"counts (sure: {sure:g})."
        )
    right, unsure = (_keys(pairs, split) for pairs in (rows.right, rows.unsure))
    return FoundPairs(right, unsure, split.num_captions)


def _keys(pairs: Rows, split: Split) -> Rows:
    return np.unique(pairs[:, 0] * split.num_captions + pairs[:, 1])


def without_known(found: Candidates, recipe: Recipe, split: Split) -> Candidates:
    """Mined negatives without those that are right or unsure by the found pairs."""
    known = known_pairs(recipe, split)
    return found if known is None else without_pairs(found, known)


def without_pairs(found: Candidates, known: FoundPairs) -> Candidates:
    """Mined negatives without known pairs, right or unsure."""

    def drop(lists: Lists, image_first: bool) -> Mask:
        query = np.broadcast_to(np.arange(len(lists))[:, None], lists.shape)
        rows = np.asarray(lists)
        pairs = (query, rows) if image_first else (rows, query)
        return known.holds(*pairs) & (rows >= 0)

    return without(found, drop(found.i2t, True), drop(found.t2i, False))
