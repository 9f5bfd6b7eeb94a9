"""What resampling needs: the share of each image in each metric, and draws of images."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simgrad.evaluation.declared import DIRECTIONS, Floats, Metric, always, per_query
from simgrad.evaluation.metrics import over_both
from simgrad.evaluation.ranks import Integers, Ranks, split_folds

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
    """Split every metric that is a mean over queries into images.

    A draw of images may hold more captions than there were; a mean over captions then divides by
    that other number. `linear` puts this, to first order, into the shares. It changes nothing
    where all images have equally many captions.
    """
    chosen = [one for one in always() if one.combine == "mean"]
    columns: dict[tuple[str, str], Floats] = {}  # (direction, metric) -> (images,)
    folds = split_folds(ranks)
    for number, fold in zip(np.unique(ranks.fold), folds, strict=True):
        rows = np.flatnonzero(ranks.fold == number)
        for way, image in _images(fold).items():
            sizes = np.bincount(image, minlength=len(rows)) / len(image)
            for name, each in per_query(fold.positions[way], chosen).items():
                part = np.bincount(image, weights=each, minlength=len(rows)) / len(each)
                if linear:
                    part = part - each.mean() * (sizes - 1 / len(rows))
                column = columns.setdefault((way, name), np.zeros(len(ranks.i2t)))
                column[rows] = part / len(folds)
    single = [one for one in chosen if one.directions]
    named = {f"{w}_{one.name}": columns[w, one.name] for w in DIRECTIONS for one in single}
    for one in chosen:
        if one.both is not None:
            named[one.name] = over_both(one, [columns[w, one.name] for w in DIRECTIONS])
    return Shares(tuple(named), np.stack(list(named.values()), axis=1))


def _images(ranks: Ranks) -> dict[str, Integers]:
    """By direction, the image of each query."""
    return {"i2t": np.arange(len(ranks.i2t)), "t2i": ranks.image_of_caption}


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


def draw_medians(
    ranks: Ranks, resamples: int, seed: int, among: Container[str] | None = None
) -> dict[str, Floats]:
    """(resamples,) of every metric (`among` these) that is a median, averaged over folds."""
    named = {
        f"{way}_{one.name}": (way, one)
        for one in always()
        for way in DIRECTIONS
        if one.combine == "median"
    }
    medians = [
        (name, _folds_of_medians(ranks, *median))
        for name, median in named.items()
        if among is None or name in among
    ]
    if not medians:
        return {}
    drawn: dict[str, list[Floats]] = {name: [] for name, _ in medians}
    for weights in draw_images(ranks, resamples, seed):
        for name, folds in medians:
            found = [fold.of(weights[:, rows]) for rows, fold in folds]
            drawn[name].append(np.mean(found, axis=0))
    return {name: np.concatenate(parts) for name, parts in drawn.items()}


def _folds_of_medians(ranks: Ranks, way: str, one: Metric) -> Sequence[tuple[Integers, "_Medians"]]:
    made = []
    for number, fold in zip(np.unique(ranks.fold), split_folds(ranks), strict=True):
        rows = np.flatnonzero(ranks.fold == number)
        each = per_query(fold.positions[way], [one])[one.name]
        made.append((rows, _Medians(each, _images(fold)[way], len(rows))))
    return made


class _Medians:
    """Medians of queries whose images are drawn.

    The median of a draw is a value near that of all: only those few are counted, for all draws by
    one matrix product. Were a draw to leave that window, all values are looked at.
    """

    def __init__(self, values: Floats, image: Integers, images: int) -> None:
        self.values, self.image, self.images = values, image, images
        self.sizes = np.bincount(image, minlength=images)
        self.levels, self.place = np.unique(values, return_inverse=True)
        below = np.cumsum(np.bincount(self.place)) / len(values)
        middle = np.bincount(image[values <= np.median(values)], minlength=images)
        spread = np.sqrt(np.sum((middle - middle.sum() / len(values) * self.sizes) ** 2))
        reach = 6 * spread / len(values) + 1e-9
        self.first = int(np.searchsorted(below, 0.5 - reach))
        self.last = min(int(np.searchsorted(below, 0.5 + reach)), len(self.levels) - 1)

    def of(self, weights: Floats) -> Floats:
        """(draws, images) how often each image is drawn -> (draws,), rounded down."""
        twice = 2 * (weights @ self._counted())  # (draws, levels) queries up to each level
        total = (weights @ self.sizes)[:, None]
        below = self.first > 0 and (twice[:, 0] >= total[:, 0]).any()
        above = self.last + 1 < len(self.levels) and (twice[:, -1] <= total[:, 0]).any()
        if below or above:
            self.first, self.last = 0, len(self.levels) - 1
            return self.of(weights)
        levels = self.levels[self.first : self.last + 1]
        low, high = (twice >= total).argmax(axis=1), (twice > total).argmax(axis=1)
        middle: Floats = np.floor((levels[low] + levels[high]) / 2)
        return middle

    def _counted(self) -> Floats:
        """(images, levels) how many queries of each image have at most each value."""
        width = self.last + 1 - self.first
        near = self.place <= self.last
        column = np.maximum(self.place[near] - self.first, 0)
        key = self.image[near] * width + column
        table = np.bincount(key, minlength=self.images * width).reshape(self.images, width)
        return np.cumsum(table, axis=1, dtype=np.float64)
