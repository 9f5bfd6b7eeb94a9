"""How sure a number is: intervals, paired tests, and seeds.

The unit is the image with all its captions, because an image's captions stand or fall together:
to treat five captions as five independent queries would claim more certainty than there is.

- One run: bootstrap over images -> an interval for every metric.
- Two runs: under the hypothesis that they are equal, each image's results may be swapped between
  them: a paired permutation test. The interval of the difference is a paired bootstrap.
- Several seeds of each: a hierarchical bootstrap draws seeds and, for all runs alike, images.
  Drawing k seeds from k understates their spread by (k - 1) / k, which is put right, and so few
  draws have heavier tails than a normal distribution, so Student's t with Welch's degrees of
  freedom turns the bootstrap's standard error into an interval and p.
- Many comparisons: Holm's correction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.metrics import DIRECTIONS, Floats
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.resampling import STEP, Shares, draw_images, draw_medians, shares


@dataclass(frozen=True)
class Difference:
    """One metric of two systems: `difference` is the second minus the first."""

    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    p_holm: float | None = None


def intervals(
    ranks: Ranks, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """A percentile bootstrap interval for every metric."""
    parts = shares(ranks, linear=True)
    drawn = np.concatenate(
        [weights @ parts.values for weights in draw_images(ranks, resamples, seed)]
    )
    low, high = np.quantile(drawn, _tails(level), axis=0)
    result = {n: (float(a), float(b)) for n, a, b in zip(parts.names, low, high, strict=True)}
    for direction in DIRECTIONS:
        medians = draw_medians(ranks, direction, resamples, seed)
        low, high = np.quantile(medians, _tails(level), method="nearest")
        result[f"{direction}_medr"] = (float(low), float(high))
    return result


def compare(
    first: Ranks,
    second: Ranks,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Every metric of two runs on the same queries: difference, interval, p."""
    check_same_queries([first, second])
    a, b = shares(first), shares(second)
    gap = b.values - a.values  # (images, metrics)
    observed = gap.sum(axis=0)
    extreme = np.zeros(len(a.names))
    random = np.random.default_rng([seed, 1])
    for start in range(0, resamples, STEP):
        size = (min(STEP, resamples - start), len(gap))
        # Swapping an image's results turns the sign of its gap.
        signs = random.integers(0, 2, size, dtype=np.int8).astype(np.float32) * 2 - 1
        shuffled = signs @ gap.astype(np.float32)
        extreme += (np.abs(shuffled) >= np.abs(observed) * (1 - 1e-5) - 1e-9).sum(axis=0)
    p = (extreme + 1) / (resamples + 1)  # the order observed is one of those possible
    gap = shares(second, linear=True).values - shares(first, linear=True).values
    drawn = np.concatenate([w @ gap for w in draw_images(first, min(resamples, 4000), seed)])
    low, high = np.quantile(drawn, _tails(level), axis=0)
    columns = zip(a.names, a.totals, b.totals, observed, low, high, p, strict=True)
    return {name: Difference(name, *(float(v) for v in row)) for name, *row in columns}


def compare_seeds(
    first: Sequence[Ranks],
    second: Sequence[Ranks],
    *,
    level: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Every metric of two systems, each run with several seeds: difference, interval, p."""
    from scipy import stats

    if min(len(first), len(second)) < 2:
        raise InputError("to tell seeds from systems, each system needs runs of two seeds or more.")
    check_same_queries([*first, *second])
    groups = [[shares(run, linear=True) for run in runs] for runs in (first, second)]
    names = groups[0][0].names
    means = [np.mean([run.totals for run in group], axis=0) for group in groups]
    # Variance of a mean over seeds, by system; the rest of the variance is due to images.
    seed_parts = [np.var([r.totals for r in g], axis=0, ddof=1) / len(g) for g in groups]
    drawn = _hierarchical(groups, first[0], resamples, seed)
    variance = drawn.var(axis=0, ddof=1)
    image_part = np.maximum(variance - sum(seed_parts), 0)
    freedom = [len(group) - 1 for group in groups] + [len(first[0].i2t) - 1]
    parts = [*seed_parts, image_part]
    tiny = np.finfo(float).tiny
    spread = sum(part**2 / df for part, df in zip(parts, freedom, strict=True))
    degrees = np.maximum(sum(parts) ** 2 / np.maximum(spread, tiny), 1)
    error = np.sqrt(np.maximum(variance, sum(seed_parts)))
    difference = means[1] - means[0]
    reach = stats.t.ppf((1 + level) / 2, degrees) * error
    p = 2 * stats.t.sf(np.abs(difference) / np.maximum(error, tiny), degrees)
    rows = zip(names, *means, difference, difference - reach, difference + reach, p, strict=True)
    return {name: Difference(name, *(float(v) for v in row)) for name, *row in rows}


def compare_many(
    systems: Mapping[str, Sequence[Ranks]], baseline: str, metric: str = "rsum", *, seed: int = 0
) -> dict[str, Difference]:
    """Each system against one of them, p corrected by Holm for the number of comparisons.

    With one run per system the test is over images, with several over seeds and images.
    """
    if baseline not in systems or len(systems) < 2:
        raise InputError(f"there is nothing to compare with '{baseline}'.")
    base = systems[baseline]
    found = {}
    for name, runs in systems.items():
        if name == baseline:
            continue
        single = len(runs) == len(base) == 1
        table = (
            compare(base[0], runs[0], seed=seed) if single else compare_seeds(base, runs, seed=seed)
        )
        if metric not in table:
            raise InputError(
                f"there is no metric '{metric}' to compare; there are: {', '.join(table)}"
            )
        found[name] = table[metric]
    corrected = holm([difference.p for difference in found.values()])
    return {
        name: Difference(**{**vars(d), "p_holm": p})
        for (name, d), p in zip(found.items(), corrected, strict=True)
    }


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the chance of any false finding stays at the stated level."""
    order = np.argsort(p)
    corrected = np.maximum.accumulate(np.asarray(p)[order] * (len(p) - np.arange(len(p))))
    result = np.empty(len(p))
    result[order] = np.minimum(corrected, 1.0)
    return [float(value) for value in result]


def check_same_queries(runs: Sequence[Ranks]) -> None:
    """Paired tests need the same queries in the same order."""
    for run in runs[1:]:
        same = run.image_ids == runs[0].image_ids and run.caption_ids == runs[0].caption_ids
        if not same or not np.array_equal(run.fold, runs[0].fold):
            raise InputError(
                f"these runs were not ranked on the same queries ({len(runs[0].i2t):,} images and "
                f"{len(runs[0].t2i):,} captions against {len(run.i2t):,} and {len(run.t2i):,}): "
                "evaluate both with one protocol on one split."
            )


def _hierarchical(
    groups: Sequence[Sequence[Shares]], like: Ranks, resamples: int, seed: int
) -> Floats:
    """(resamples, metrics) differences of means, over drawn images and drawn seeds."""
    random = np.random.default_rng([seed, 2])
    chunks = []
    for weights in draw_images(like, resamples, seed):
        means = []
        for group in groups:
            runs = np.stack([weights @ run.values for run in group])  # (seeds, resamples, metrics)
            count = len(group)
            draws = random.multinomial(count, np.full(count, 1 / count), size=len(weights)) / count
            middle = runs.mean(axis=0)
            drawn = np.einsum("bk,kbm->bm", draws, runs)
            means.append(middle + (drawn - middle) * np.sqrt(count / (count - 1)))
        chunks.append(means[1] - means[0])
    return np.concatenate(chunks)


def _tails(level: float) -> list[float]:
    if not 0 < level < 1:
        raise InputError(f"a confidence level lies between 0 and 1, not at {level}.")
    return [(1 - level) / 2, (1 + level) / 2]
