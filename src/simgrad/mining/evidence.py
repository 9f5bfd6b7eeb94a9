"""What speaks for a pair that nobody has marked, and how probable that makes it.

Several models speak, in both directions, and the data. Everything is on a scale that does not
depend on the model, so that what was learned on one data set means something on another: a
similarity stands between the query's average candidate (0) and its own pairs (1).

The probability is a logistic regression, learned from answers. The weights that come with simgrad
were learned on human judgments of half of Flickr8k's test images (results/negatives). On other data
they order pairs well, but their probabilities are a guess: answer some pairs and give the file as
--calibrate.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
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


_RIDGE = 1.0  # against extreme weights where answers are few
LEAST = 20  # answers of each kind to learn from


@dataclass(frozen=True)
class Probable:
    """P(right) = 1 / (1 + exp(-(bias + weights · (evidence - mean) / deviation)))"""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    learned_from: str = ""

    def __call__(self, evidence: Floats) -> Floats:
        """(pairs,) probabilities."""
        from scipy.special import expit

        if evidence.shape[1] != len(self.weights):
            raise InputError(
                f"{evidence.shape[1]} kinds of evidence, but weights for {len(self.weights)}."
            )
        z = (evidence - np.array(self.mean)) / np.array(self.deviation) @ np.array(self.weights)
        return np.asarray(expit(z + self.bias), dtype=np.float64)

    @staticmethod
    def learned(
        names: tuple[str, ...], evidence: Floats, right: npt.NDArray[Any], source: str = ""
    ) -> "Probable":
        """Fit to pairs of which somebody said whether they are right."""
        from scipy.optimize import minimize
        from scipy.special import expit

        y = right.astype(np.float64)
        if min(y.sum(), (1 - y).sum()) < LEAST:
            raise InputError(
                f"{source or 'the answers'}: {int(y.sum())} yes and {int((1 - y).sum())} no; at "
                f"least {LEAST} of each are needed to calibrate."
            )
        mean, deviation = evidence.mean(0), np.maximum(evidence.std(0), 1e-6)
        x = (evidence - mean) / deviation

        def loss(theta: Floats) -> tuple[float, Floats]:
            z = x @ theta[1:] + theta[0]
            error = expit(z) - y
            value = np.logaddexp(0, z) - y * z
            slope = np.concatenate([[error.sum()], x.T @ error + _RIDGE * theta[1:]])
            return float(value.sum() + 0.5 * _RIDGE * theta[1:] @ theta[1:]), slope

        # All evidence speaks for a pair: a weight below 0 would only fit how kinds overlap here.
        bounds = [(None, None)] + [(0.0, None)] * x.shape[1]
        start = np.zeros(x.shape[1] + 1)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return Probable(
            names,
            tuple(mean.tolist()),
            tuple(deviation.tolist()),
            tuple(found[1:].tolist()),
            float(found[0]),
            source,
        )


def shipped() -> Probable:
    """What was learned on Flickr8k."""
    told = json.loads(files("simgrad.mining").joinpath("probable.json").read_text("utf-8"))
    lists = {key: tuple(value) for key, value in told.items() if isinstance(value, list)}
    return Probable(**{**told, **lists})
