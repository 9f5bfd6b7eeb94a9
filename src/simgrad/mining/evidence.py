"""What speaks for a pair that nobody has marked: several models, both directions, and the data.

Everything is on a scale that does not depend on the model, so that what was learned on one data set
means something on another. A similarity stands between the query's average candidate (0) and its
own pairs (1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.core.devices import widened
from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split
from simgrad.data.candidates import Lists
from simgrad.data.likeness import CaptionLikeness, picture_likeness
from simgrad.evaluation.judgments import pair_similarities
from simgrad.evaluation.scores import Scores
from simgrad.mining.mine import mine_scores, own_scores

Floats = npt.NDArray[np.float64]
NAMES = {
    "similarity": "the similarity, on the scale of all pairs, mean of the models",
    "image_side": "how near the image's own captions it comes, mean of the models",
    "caption_side": "how near the caption's own image it comes, mean of the models",
    "agreement": "the same of the model that doubts it most, both sides together",
    "image_rank": "its place among the image's candidates, 1 first, 0 beyond the lists",
    "caption_rank": "its place among the caption's candidates",
    "siblings": "the same similarity of the caption's image with the image's own captions, mean",
    "neighbours": "share of images that both image and caption lead to",
    "nearest_caption": "words shared with the nearest of the image's own captions",
    "mean_caption": "words shared with the image's own captions, mean",
    "picture": "how much the image looks like the caption's own image",
}
DEPTH = 50  # candidates of a query that are ranked
_SHARED = 20  # of them that are compared with those of another query
_PAIRS = 20_000  # that are looked at together


@dataclass(frozen=True)
class View:
    """One model's similarities, and what is needed again and again."""

    scores: Scores
    own: Floats  # (captions,) of each caption with its image
    i2t: Lists
    t2i: Lists
    image_mean: Floats  # (images,) of all captions
    caption_mean: Floats
    knows: float  # share of captions whose own image is among the first candidates

    @staticmethod
    def of(scores: Scores, image_of_caption: Rows, depth: int = DEPTH) -> "View":
        """Rank every candidate of every query once."""
        found = mine_scores(scores, image_of_caption, depth)
        owner = torch.from_numpy(np.asarray(image_of_caption))
        own = own_scores(scores, owner).double().numpy()
        rows, columns = _means(scores)
        knows = found.info["statistics"]["t2i"]["own_among"]
        return View(scores, own, found.i2t, found.t2i, rows, columns, knows)


def _means(scores: Scores) -> tuple[Floats, Floats]:
    rows = np.empty(scores.num_images)
    total: Tensor | None = None
    for start, stop, block in scores.blocks():
        wide = widened(block)
        rows[start:stop] = wide.mean(1).cpu().numpy()
        part = wide.sum(0)
        total = part if total is None else total + part
    assert total is not None
    return rows, (total / scores.num_images).cpu().numpy()


def candidates(views: Sequence[View], split: Split, depth: int = DEPTH) -> Rows:
    """(k, 2) every pair that is among the first of any model in either direction."""
    keys = []
    for view in views:
        for lists, image_first in ((view.i2t, True), (view.t2i, False)):
            query, place = np.nonzero(lists[:, :depth] >= 0)
            other = lists[query, place].astype(np.int64)
            image, caption = (query, other) if image_first else (other, query)
            keys.append(image * split.num_captions + caption)
    key = np.unique(np.concatenate(keys))
    return np.stack([key // split.num_captions, key % split.num_captions], 1)


def evidence(views: Sequence[View], split: Split, pairs: Rows) -> Floats:
    """(pairs, len(NAMES)) for any pairs of image and caption rows."""
    if not views:
        raise InputError("which model says so? Give at least one.")
    images, captions = pairs[:, 0], pairs[:, 1]
    sides = [_sides(view, split, images, captions) for view in views]  # each (pairs, 2)
    ranks = [
        (_place(view.i2t, images, captions), _place(view.t2i, captions, images)) for view in views
    ]
    nearest, mean = CaptionLikeness(split.captions).to_own(split, images, captions)
    siblings = np.mean([_siblings(view, split, images, captions) for view in views], 0)
    columns = {
        "similarity": np.mean(
            [_scaled(v, pair_similarities(v.scores, images, captions)) for v in views], 0
        ),
        "image_side": np.mean([s[:, 0] for s in sides], 0),
        "caption_side": np.mean([s[:, 1] for s in sides], 0),
        "agreement": np.min([s.mean(1) for s in sides], 0),
        "image_rank": np.mean([r[0] for r in ranks], 0),
        "caption_rank": np.mean([r[1] for r in ranks], 0),
        "siblings": siblings,
        "neighbours": np.mean([_neighbours(v, split, images, captions) for v in views], 0),
        "nearest_caption": nearest,
        "mean_caption": mean,
        "picture": picture_likeness(split, images, split.image_of_caption[captions]),
    }
    return np.stack([columns[name] for name in NAMES], 1).astype(np.float64)


def _scaled(view: View, score: Floats) -> Floats:
    """Between the average pair (0) and the average own pair (1)."""
    middle = float(view.image_mean.mean())
    return np.clip((score - middle) / max(float(view.own.mean()) - middle, 1e-6), -2, 3)


def _siblings(view: View, split: Split, images: Rows, captions: Rows) -> Floats:
    """The caption's own image against the captions of the image: do the two show the same?"""
    other = split.image_of_caption[captions]
    key = images * split.num_images + other
    each, back = np.unique(key, return_inverse=True)
    image, other = each // split.num_images, each % split.num_images
    found = np.zeros(len(each))
    for a, b in ((image, other), (other, image)):
        counts = split.captions_per_image[b]
        pair, theirs = split.captions_of_each(b)
        score = _scaled(view, pair_similarities(view.scores, a[pair], theirs))
        found += 0.5 * np.bincount(pair, score, len(each)) / np.maximum(counts, 1)
    return found[back]


def _sides(view: View, split: Split, images: Rows, captions: Rows) -> Floats:
    """Between the average candidate (0) and the own pair (1), from the image and the caption."""
    score = pair_similarities(view.scores, images, captions)
    counts = np.maximum(split.captions_per_image, 1)
    of_image = np.bincount(split.image_of_caption, view.own, split.num_images) / counts
    found = []
    for mean, own in (
        (view.image_mean[images], of_image[images]),
        (view.caption_mean[captions], view.own[captions]),
    ):
        # A model that does not know its own pair has no scale there.
        scale = np.maximum(own - mean, 0.05 * np.std(view.own) + 1e-6)
        found.append(np.clip((score - mean) / scale, -1, 2))
    return np.stack(found, 1)


def _place(lists: Lists, query: Rows, candidate: Rows) -> Floats:
    """1 for the first of a list, falling with the logarithm of the place to 0."""
    found = np.zeros(len(query))
    depth = lists.shape[1]
    worth = 1 - np.log1p(np.arange(depth)) / np.log1p(depth)
    for start in range(0, len(query), _PAIRS):
        part = slice(start, start + _PAIRS)
        hit = lists[query[part]] == candidate[part, None]
        found[part] = np.where(hit.any(1), worth[hit.argmax(1)], 0)
    return found


def _neighbours(view: View, split: Split, images: Rows, captions: Rows) -> Floats:
    """Share of the images a caption leads to whose captions the image leads to, too."""
    near = np.where(view.i2t >= 0, split.image_of_caption[view.i2t], -1)[:, :_SHARED]
    theirs = view.t2i[:, :_SHARED]
    found = np.zeros(len(images))
    for start in range(0, len(images), _PAIRS):
        part = slice(start, start + _PAIRS)
        a, b = near[images[part]], theirs[captions[part]]
        same: Any = (a[:, :, None] == b[:, None, :]) & (b >= 0)[:, None, :]
        found[part] = same.any(1).mean(1)
    return found
