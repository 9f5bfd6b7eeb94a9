"""Whether two systems differ: paired over the same images, with an interval and p.

- One run of each: if the two were equal, each image's results might as well be swapped between
  them: a paired permutation test. The interval of the difference is a paired bootstrap.
- Several seeds of each: a hierarchical bootstrap draws seeds and, for all runs alike, images.
  Drawing k seeds from k understates their spread by (k - 1) / k, which is put right, and so few
  draws have heavier tails than a normal distribution, so Student's t with Welch's degrees of
  freedom turns the bootstrap's standard error into an interval and p.
- Many comparisons: Holm's correction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.comparison import Comparison, Difference
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.resampling import STEP, Shares, draw_images, shares
from simgrad.evaluation.uncertainty import LEVEL, tails_of

Runs = Ranks | Metrics | Sequence[Ranks] | Sequence[Metrics]


def compare(
    first: Runs,
    second: Runs,
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = LEVEL,
    resamples: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Every metric of two systems on the same queries: difference, interval, p.

    Each is a `Metrics` (or its `ranks`), or a list of them, one for each seed.

    Examples:
        >>> images, texts = torch.eye(20), torch.eye(20)
        >>> first = simgrad.evaluate(images, texts, range(20))
        >>> second = simgrad.evaluate(images, texts.roll(1, 0), range(20))  # all captions wrong
        >>> result = simgrad.compare(first, second)
        >>> result["i2t_r1"].difference, result["i2t_r1"].p < 0.001
        (-100.0, True)
    """
    a, b = _ranks(first), _ranks(second)
    tails_of(level)
    if len(a) == len(b) == 1:
        found = _compare_runs(a[0], b[0], level, resamples or 10_000, seed)
    else:
        found = compare_seeds(a, b, level=level, resamples=resamples or 4000, seed=seed)
    return Comparison(found, names, level=level, seeds=(len(a), len(b)))


def _ranks(runs: Runs) -> list[Ranks]:
    several = isinstance(runs, Iterable) and not isinstance(runs, Ranks | Metrics)
    listed: list[Any] = list(runs) if several else [runs]  # type: ignore[arg-type]
    found = [run.ranks if isinstance(run, Metrics) else run for run in listed]
    if not found or not all(isinstance(run, Ranks) for run in found):
        raise InputError(
            "compare what? Give two results of simgrad.evaluate, or two lists of them, one result "
            "for each seed."
        )
    return found


def _compare_runs(
    first: Ranks, second: Ranks, level: float, resamples: int, seed: int
) -> dict[str, Difference]:
    """One run of each."""
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
    low, high = np.quantile(drawn, tails_of(level), axis=0)
    error = drawn.std(axis=0)
    columns = zip(a.names, a.totals, b.totals, observed, low, high, p, error, strict=True)
    return {name: Difference(name, *(float(v) for v in row)) for name, *row in columns}


def compare_seeds(
    first: Sequence[Ranks],
    second: Sequence[Ranks],
    *,
    level: float = LEVEL,
    resamples: int = 4000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Every metric of two systems, each run with several seeds: difference, interval, p.

    Examples:
        >>> first, second = (
        ...     [simgrad.evaluate_similarities(torch.rand(20, 20)).ranks for _ in range(2)]
        ...     for _ in range(2)
        ... )
        >>> found = simgrad.evaluation.compare_seeds(first, second)["rsum"]
        >>> found.low < found.difference < found.high
        True
    """
    from scipy.special import stdtr, stdtrit  # scipy.stats takes two seconds to import

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
    reach = stdtrit(degrees, (1 + level) / 2) * error
    p = 2 * stdtr(degrees, -np.abs(difference) / np.maximum(error, tiny))
    ends = difference - reach, difference + reach
    rows = zip(names, *means, difference, *ends, p, np.sqrt(image_part), strict=True)
    return {name: Difference(name, *(float(v) for v in row)) for name, *row in rows}


def compare_with(
    systems: Mapping[str, Runs], baseline: str, *, level: float = LEVEL, seed: int = 0
) -> dict[str, Comparison]:
    """Each system against one of them; p corrected by Holm for the number of comparisons.

    With one run of each the test is over images, with several over seeds and images.

    Examples:
        >>> systems = {n: simgrad.evaluate_similarities(torch.rand(20, 20)) for n in "abc"}
        >>> found = simgrad.evaluation.compare_with(systems, "a")
        >>> [name for name, one in found.items() if one["rsum"].p < 0.05]
        []
    """
    if baseline not in systems or len(systems) < 2:
        raise InputError(f"there is nothing to compare with '{baseline}'.")
    found = {
        name: compare(systems[baseline], runs, names=(baseline, name), level=level, seed=seed)
        for name, runs in systems.items()
        if name != baseline
    }
    if len(found) == 1:
        return found
    for metric in next(iter(found.values())):
        corrected = holm([one[metric].p for one in found.values()])
        for one, p in zip(found.values(), corrected, strict=True):
            one.found[metric] = replace(one[metric], p_holm=p)
    return found


def compare_many(
    systems: Mapping[str, Sequence[Ranks]], baseline: str, metric: str = "rsum", *, seed: int = 0
) -> dict[str, Difference]:
    """`compare_with` in one metric.

    Examples:
        >>> names = "abc"
        >>> systems = {n: [simgrad.evaluate_similarities(torch.rand(20, 20)).ranks] for n in names}
        >>> found = simgrad.evaluation.compare_many(systems, "a")
        >>> list(found)
        ['b', 'c']
    """
    found = compare_with(systems, baseline, seed=seed)
    table = next(iter(found.values()))
    if metric not in table:
        raise InputError(f"there is no metric '{metric}' to compare; there are: {', '.join(table)}")
    return {name: one[metric] for name, one in found.items()}


def with_spread(systems: Mapping[str, list[Ranks]]) -> dict[str, list[Ranks]]:
    """The systems that can be compared with each other: where any has several runs, those that do.

    How much seeds differ cannot be told from one run, and what cannot be told of one system must
    not lower what is known of the others.
    """
    done = {label: runs for label, runs in systems.items() if runs}
    several = {label: runs for label, runs in done.items() if len(runs) > 1}
    return several or done


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the chance of any false finding stays at the stated level.

    Examples:
        >>> [round(p, 3) for p in simgrad.evaluation.holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    corrected = np.maximum.accumulate(np.asarray(p)[order] * (len(p) - np.arange(len(p))))
    result = np.empty(len(p))
    result[order] = np.minimum(corrected, 1.0)
    return [float(value) for value in result]


def check_same_queries(runs: Sequence[Ranks]) -> None:
    """Paired tests need the same queries in the same order."""
    for run in runs[1:]:
        same = (
            np.array_equal(run.image_of_caption, runs[0].image_of_caption)
            and np.array_equal(run.fold, runs[0].fold)
            and _same_names(run.image_ids, runs[0].image_ids)
            and _same_names(run.caption_ids, runs[0].caption_ids)
        )
        if not same:
            raise InputError(
                f"these runs were not ranked on the same queries ({len(runs[0].i2t):,} images and "
                f"{len(runs[0].t2i):,} captions against {len(run.i2t):,} and {len(run.t2i):,}): "
                "evaluate both with one protocol on one split."
            )


def _same_names(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Equal; or one of them has no names, but the numbers of rows."""
    numbers = tuple(map(str, range(len(first))))
    return first == second or (len(first) == len(second) and numbers in (first, second))


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
