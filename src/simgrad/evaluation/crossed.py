"""How sure a mean over runs and images is, and a difference of two: crossed random effects.

Chance has two sources: which runs were made (seeds, or whole searches) and which images are in the
test split. What one run finds of one image is

    metric + effect of the run + effect of the image + what this run does with this image

so the variance of a mean over k runs and n images is

    var(run) / k  +  var(image) / n  +  var(interaction) / (k n)

The variance between the runs' means has the first part and the third; the variance between the
images' means has the second and, once more, the third. So the interaction is taken out of the
images' part. In a difference of two systems both see the same images, and each has its own runs.

All of it is in closed form for metrics that are means over queries. The unit is the image with all
its captions: they stand or fall together. The runs' part is an estimate from few runs, with
Satterthwaite's degrees of freedom where two systems have one each; the images' part is known about
as well as there are many images. So the error of a number is a sum, of a Student's t (the
runs) and a normal variable (the images): Behrens and Fisher's distribution. (Satterthwaite's
degrees of freedom of the sum are themselves estimated: where three seeds agree by luck they are
many, and intervals too short.) Of one run each, the images' part is all that can be known.

`components` takes the variance of replicates apart: each searched anew, and its runs differ by
their seeds. It does so by the usual differences of mean squares; a negative part is 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.declared import DIRECTIONS, Floats, always, per_query
from simgrad.evaluation.distributions import largest_t_quantile, largest_t_tail
from simgrad.evaluation.metrics import over_both
from simgrad.evaluation.ranks import Integers, Ranks, split_folds

# The one tuned number. Where most of the variance is due to images, Behrens and Fisher's intervals
# are too wide. More degrees of freedom there (by this share) bring their coverage nearer to the
# stated level; where runs prevail, none are added. Chosen from 0, 0.25, 0.5, 1 and 2 on simulated
# cells: results/inference/spare.py.
_SPARE = 0.25


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
        for way, image in images_of_queries(fold).items():
            sizes = np.bincount(image, minlength=len(rows)) / len(image)
            for name, each in per_query(fold.positions[way], chosen, fold, way).items():
                part = np.bincount(image, weights=each, minlength=len(rows)) / len(each)
                if linear:
                    part = part - each.mean() * (sizes - 1 / len(rows))
                column = columns.setdefault((way, name), np.zeros(len(ranks.i2t)))
                column[rows] = part / len(folds)
    single = [one for one in chosen if one.directions]
    named = {
        f"{w}_{one.name}": columns[w, one.name]
        for w in DIRECTIONS
        for one in single
        if (w, one.name) in columns
    }
    for one in chosen:
        ways = [columns[w, one.name] for w in DIRECTIONS if (w, one.name) in columns]
        if one.both is not None and len(ways) == len(DIRECTIONS):
            named[one.name] = over_both(one, ways)
    return Shares(tuple(named), np.stack(list(named.values()), axis=1))


def images_of_queries(ranks: Ranks) -> dict[str, Integers]:
    """By direction, the image of each query."""
    return {"i2t": np.arange(len(ranks.i2t)), "t2i": ranks.image_of_caption}


def runs_of(draw: Ranks | Sequence[Ranks]) -> list[Ranks]:
    """Of a draw: itself, or the runs of a replicate."""
    return [draw] if isinstance(draw, Ranks) else list(draw)


@dataclass(frozen=True)
class Crossed:
    """Runs of one system on the same images: what each image adds to each metric in each run."""

    names: tuple[str, ...]
    values: Floats  # (runs, images, metrics): the sum over images is the metric
    fold: Integers  # (images,)

    @staticmethod
    def of(draws: Sequence[Ranks | Sequence[Ranks]]) -> "Crossed":
        """Of independent draws: runs, or means over several runs each."""
        several = [runs_of(draw) for draw in draws]
        parts = [[shares(run, linear=True) for run in runs] for runs in several]
        values = [np.mean([part.values for part in runs], axis=0) for runs in parts]
        return Crossed(parts[0][0].names, np.stack(values), several[0][0].fold)

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def totals(self) -> Floats:
        """(runs, metrics)"""
        return np.asarray(self.values.sum(axis=1))

    @property
    def mean(self) -> Floats:
        """(metrics,)"""
        return np.asarray(self.totals.mean(axis=0))

    @cached_property
    def per_image(self) -> Floats:
        """(images, metrics) means over runs."""
        return np.asarray(self.values.mean(axis=0))

    @cached_property
    def run_part(self) -> Floats:
        """(metrics,) variance of the mean that is due to the runs, the interaction included."""
        if len(self) < 2:
            return np.zeros(len(self.names))
        return np.asarray(self.totals.var(axis=0, ddof=1) / len(self))

    @cached_property
    def interaction(self) -> Floats:
        """(metrics,) variance of the mean that is due to the interaction alone."""
        found = np.zeros(len(self.names))
        if len(self) < 2:
            return found
        for rows in folds(self.fold):
            part = self.values[:, rows]
            rest = part - part.mean(axis=1, keepdims=True) - part.mean(axis=0) + part.mean((0, 1))
            square = np.einsum("rim,rim->m", rest, rest) / ((len(self) - 1) * (len(rows) - 1))
            found += len(rows) * square / len(self)
        return found


def folds(fold: Integers) -> list[Integers]:
    """The images of each fold."""
    found = [np.flatnonzero(fold == number) for number in np.unique(fold)]
    if min(map(len, found)) < 2:
        raise InputError("one image (of a fold) does not say how much images differ.")
    return found


@dataclass(frozen=True)
class Sureness:
    """Standard errors of some numbers, and how well they are known; each of shape (metrics,)."""

    error: Floats
    freedom: Floats  # with which the runs' part of the variance is estimated
    image_error: Floats  # the part that more runs would not lower
    known: Floats  # share of the variance that is as good as known
    least_p: float = 0.0  # no test of so few images can give less

    def p(self, numbers: Floats) -> Floats:
        """Two-sided p that each number is 0."""
        found = []
        for place, (number, error) in enumerate(zip(numbers, self.error, strict=True)):
            found.append(max(self.tail(_ratio(abs(number), error), place), self.least_p))
        return np.array(found)

    def tail(self, t: float, place: int = 0, comparisons: int = 1) -> float:
        """P(any of several such numbers is so many standard errors from the truth)."""
        freedom, known = float(self.freedom[place]), float(self.known[place])
        return largest_t_tail(t, comparisons, freedom, known)

    def quantile(self, tail: float, place: int = 0, comparisons: int = 1) -> float:
        """The inverse of `tail`."""
        freedom, known = float(self.freedom[place]), float(self.known[place])
        return largest_t_quantile(tail, comparisons, freedom, known)

    def reach(self, level: float) -> Floats:
        """Half the widths of intervals."""
        return np.array(
            [
                self.quantile(1 - level, place) * error if error > 0 else 0.0
                for place, error in enumerate(self.error)
            ]
        )


def _ratio(number: float, error: float) -> float:
    if error > 0:
        return number / error
    return 0.0 if number == 0 else math.copysign(math.inf, number)


def by_chance(units: int) -> float:
    """P(so many independent differences all point one way), if neither way is the likelier."""
    return 2.0 ** (1 - units)


def sureness(*systems: Crossed) -> Sureness:
    """Of the mean of one system, or of the difference of two on the same images."""
    gaps = systems[-1].per_image
    if len(systems) == 2:
        gaps = gaps - systems[0].per_image
    rows = folds(systems[0].fold)
    images = sum(len(some) * gaps[some].var(axis=0, ddof=1) for some in rows)
    count = len(gaps) - len(rows)
    inner: Floats = np.sum([one.interaction for one in systems], axis=0)
    image_part = np.maximum(images - inner, 0)
    runs = [(one.run_part, len(one) - 1) for one in systems if len(one) > 1]
    if not runs:
        least = by_chance(len(gaps)) if len(systems) == 2 else 0.0
        nothing = np.zeros(len(inner))
        error = np.sqrt(image_part)
        return Sureness(error, nothing + count, error, nothing, least)
    estimated = np.sum([part for part, _ in runs], axis=0)
    squares = np.sum([part**2 / freedom for part, freedom in runs], axis=0)
    freedom = np.maximum(estimated**2 / np.maximum(squares, np.finfo(float).tiny), 1)
    # Of few images that part is an estimate, too: a Student's t, of which this is the variance.
    return sureness_from(estimated, freedom, image_part * count / max(1, count - 2))


def sureness_from(runs: Floats, freedom: Floats, images: Floats) -> Sureness:
    """By variances: the runs' part, estimated with degrees of freedom, and the images' part."""
    total = runs + images
    known = images / np.maximum(total, np.finfo(float).tiny)
    return Sureness(np.sqrt(total), freedom * (1 + _SPARE * known), np.sqrt(images), known)


def paired_sureness(first: Floats, second: Floats) -> Sureness:
    """Of the difference of two systems whose draws are pairs, each on images of its own.

    (draws, metrics): then images, splits and searches are all in how much the pairs differ.
    """
    gaps = second - first
    if len(gaps) < 2:
        raise InputError("one replicate does not say how much replicates differ.")
    error = gaps.std(axis=0, ddof=1) / math.sqrt(len(gaps))
    freedom = np.full(gaps.shape[1], len(gaps) - 1.0)
    nothing = np.zeros(gaps.shape[1])
    return Sureness(error, freedom, nothing, nothing)


@dataclass(frozen=True)
class Components:
    """Standard deviations of one run's metric that are due to each cause."""

    search: float  # where replicates have splits of their own, split and search together
    seed: float | None  # None: no replicate has two runs
    images: float


def components(
    draws: Sequence[Sequence[Ranks]], metric: str = "rsum", *, new_images: bool = False
) -> Components:
    """Of the runs of each replicate; `new_images`: each replicate was tested on images of its own.

    Examples:
        >>> embeddings = np.random.default_rng(0).normal(size=(30, 8))
        >>> def run(noise):
        ...     noise = np.random.default_rng(noise).normal(size=(30, 8))
        ...     return simgrad.evaluate(embeddings, embeddings + noise, range(30)).ranks
        >>> found = components([[run(1), run(2)], [run(3), run(4)]])
        >>> found.images > 0
        True
    """
    if len(draws) < 2 or not all(draws):
        raise InputError("two replicates or more, each with a run, say how much searches differ.")
    totals: list[list[float]] = []
    images: list[float] = []
    for draw in draws:
        totals.append([])
        for run in draw:
            found = shares(run, linear=True)
            values = found.values[:, found.names.index(metric)]  # their sum is the metric
            totals[-1].append(float(values.sum()))
            images.append(len(values) * float(values.var(ddof=1)))
    several = [each for each in totals if len(each) > 1]
    seed = float(np.mean([np.var(each, ddof=1) for each in several])) if several else None
    between = float(np.var([np.mean(each) for each in totals], ddof=1))
    less = (seed or 0.0) * float(np.mean([1 / len(each) for each in totals]))
    less += float(np.mean(images)) if new_images else 0.0
    return Components(
        math.sqrt(max(0.0, between - less)),
        None if seed is None else math.sqrt(seed),
        math.sqrt(float(np.mean(images))),
    )
