"""What resampling needs: the share of each image in each metric, and draws of images."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simgrad.evaluation.metrics import DIRECTIONS, HEADLINE_RECALLS, Floats, per_query
from simgrad.evaluation.ranks import Booleans, Integers, Ranks, split_folds

STEP = 500  # resamples at a time: bounds the memory


@dataclass(frozen=True)
class Shares:
    """What each image adds to each metric: the metric is the sum over images."""

    names: tuple[str, ...]
    values: Floats  # (images, metrics)

    @property
    def totals(self) -> Floats:
        """(metrics,) the metrics themselves."""
        return np.asarray(self.values.sum(axis=0), dtype=np.float64)


def shares(ranks: Ranks, *, linear: bool = False) -> Shares:
    """Split every metric that is a mean over queries, and their sums, into images.

    A draw of images may hold more captions than there were; a mean over captions then divides by
    that other number. `linear` puts this, to first order, into the shares. It changes nothing
    where all images have equally many captions.
    """
    columns: dict[str, Floats] = {}
    folds = split_folds(ranks)
    for number, fold in zip(np.unique(ranks.fold), folds, strict=True):
        rows = np.flatnonzero(ranks.fold == number)
        sizes = np.bincount(fold.image_of_caption, minlength=len(rows)) / len(fold.t2i)
        for name, each in per_query(fold.i2t_positions).items():
            column = columns.setdefault(f"i2t_{name}", np.zeros(len(ranks.i2t)))
            column[rows] = each / len(each) / len(folds)
        for name, each in per_query(fold.t2i_positions).items():
            column = columns.setdefault(f"t2i_{name}", np.zeros(len(ranks.i2t)))
            summed = np.bincount(fold.image_of_caption, weights=each) / len(each)
            if linear:
                summed = summed - each.mean() * (sizes - 1 / len(rows))
            column[rows] = summed / len(folds)
    six = np.stack([columns[f"{d}_r{k}"] for d in DIRECTIONS for k in HEADLINE_RECALLS])
    for index, direction in enumerate(DIRECTIONS):
        columns[f"{direction}_average_recall"] = six[3 * index : 3 * index + 3].mean(axis=0)
    columns["average_recall"] = six.mean(axis=0)
    columns["rsum"] = six.sum(axis=0)
    return Shares(tuple(columns), np.stack(list(columns.values()), axis=1))


def draw_images(ranks: Ranks, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each image is drawn, (resamples, images), some at a time; folds keep their size."""
    random = np.random.default_rng([seed, 0])
    images = [np.flatnonzero(ranks.fold == f) for f in np.unique(ranks.fold)]
    for start in range(0, resamples, STEP):
        size = min(STEP, resamples - start)
        weights = np.zeros((size, len(ranks.i2t)))
        for rows in images:
            draw = random.integers(0, len(rows), (size, len(rows)))
            draw += np.arange(size)[:, None] * len(rows)
            counted = np.bincount(draw.ravel(), minlength=size * len(rows))
            weights[:, rows] = counted.reshape(size, len(rows))
        yield weights


def draw_medians(ranks: Ranks, direction: str, resamples: int, seed: int) -> Floats:
    """(resamples,) median ranks, as `medr` defines them, averaged over folds."""
    values = ranks.i2t if direction == "i2t" else ranks.t2i
    image = np.arange(len(ranks.i2t)) if direction == "i2t" else ranks.image_of_caption
    folds = np.unique(ranks.fold)
    order = {f: _sorted_queries(values, ranks.fold[image] == f) for f in folds}
    chunks = []
    for weights in draw_images(ranks, resamples, seed):
        medians = []
        for fold in folds:
            queries = order[fold]
            total = np.cumsum(weights[:, image[queries]], axis=1)
            middle = [_at(total, values[queries], half) for half in (0.5, 0.5 + 1e-9)]
            medians.append(np.floor((middle[0] + middle[1]) / 2))
        chunks.append(np.mean(medians, axis=0))
    return np.concatenate(chunks)


def _sorted_queries(values: Integers, chosen: Booleans) -> Integers:
    queries = np.flatnonzero(chosen)
    return queries[np.argsort(values[queries], kind="stable")]


def _at(total: Floats, values: Integers, half: float) -> Floats:
    """The value at which the running count passes this share of all."""
    wanted = total[:, -1:] * half
    return np.asarray(values[(total < wanted - 1e-12).sum(axis=1)], dtype=np.float64)
