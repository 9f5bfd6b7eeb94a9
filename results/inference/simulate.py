"""How often the inference errs: `python results/inference/simulate.py`, about five minutes.

It simulates what runs find of images, with systems that are equal (or exactly the margin apart),
and counts how often they are told apart (or called equivalent). Last, real runs against themselves:
the seeds of results/flickr8k/study, five against five. It writes table.md. `--trials 100` is
quicker. The scale is that of the study: rsum of one image differs by 140 between images, by 90
between runs of one image.
"""

import argparse
import csv
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import mean

import numpy as np

from simgrad.evaluation import Ranks
from simgrad.evaluation.crossed import Crossed, paired_sureness, sureness
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.standing import MARGIN, SURE

HERE = Path(__file__).resolve().parent
STUDY = HERE.parent / "flickr8k" / "study"
BY_IMAGE, BY_SYSTEM, NOISE = 140.0, 20.0, 90.0
SMALL, LARGE, SEARCH = 1.0, 15.0, 2.8  # standard deviations of a seed, and of a search
FAILING, LOST = 0.2, 250.0  # the share of runs that fail, and what each of them lacks
Random = np.random.Generator
KINDS = ("small seed effects", "large seed effects", "unequal variances", "heavy tails", "failures")


@dataclass(frozen=True)
class Cell:
    """One line of the table: `low` and `high` are the goal, in percent."""

    part: str
    what: str
    rate: float
    trials: int
    low: float
    high: float

    @property
    def error(self) -> float:
        """One standard error of the simulation, in percent."""
        share = min(max(self.rate / 100, 1 / self.trials), 1 - 1 / self.trials)
        return 100 * math.sqrt(share * (1 - share) / self.trials)

    @property
    def met(self) -> str:
        if self.low <= self.rate <= self.high:
            return "met"
        beyond = max(self.low - self.rate, self.rate - self.high)
        return "missed, within chance" if beyond <= 2 * self.error else "**missed**"


def crossed(values: Floats) -> Crossed:
    """Of (runs, images, trials) results whose mean over images is the metric.

    Every trial takes the place of a metric, so that many are computed at once.
    """
    _, images, trials = values.shape
    names = tuple(map(str, range(trials)))
    return Crossed(names, values / images, np.zeros(images, dtype=np.int64))


def system(random: Random, runs: int, images: Floats, kind: str, place: int = 0) -> Crossed:
    """Runs of a system that is equal to all others: they share how hard the images are."""
    count, trials = images.shape
    by_run = SMALL if kind == KINDS[0] else LARGE
    if kind == "unequal variances":
        by_run = (SMALL, LARGE)[place % 2]
    seeds = random.standard_normal((runs, 1, trials))
    if kind == "heavy tails":  # Student's t of 3, with a variance of 1
        seeds = random.standard_t(3, (runs, 1, trials)) / math.sqrt(3)
    values = NOISE * random.standard_normal((runs, count, trials))
    values += images + random.normal(0, BY_SYSTEM, (count, trials)) + by_run * seeds
    if kind == "failures":
        values -= LOST * (random.random((runs, 1, trials)) < FAILING)
    return crossed(values)


def difficulty(random: Random, images: int, trials: int, kind: str = "") -> Floats:
    if kind == "heavy tails":
        return np.asarray(BY_IMAGE * random.standard_t(3, (images, trials)) / math.sqrt(3))
    return random.normal(0, BY_IMAGE, (images, trials))


def p_of(first: Crossed, second: Crossed) -> Floats:
    return sureness(first, second).p(second.mean - first.mean)


def told_apart(every: list[Crossed]) -> Floats:
    """Of each trial: whether anybody is told apart from the leader, as `stand` does it.

    So nobody is compared of whom every run failed.
    """
    means = np.stack([one.mean for one in every])
    failed = np.stack([(one.totals < -LOST / 2).all(axis=0) for one in every])
    leaders, left = means.argmax(axis=0), (~failed).sum(axis=0)
    found = np.zeros(means.shape[1], dtype=bool)
    for i, j in combinations(range(len(every)), 2):
        sure = sureness(every[i], every[j])
        for trial in np.flatnonzero(((leaders == i) | (leaders == j)) & ~failed[i] & ~failed[j]):
            t = float(abs(means[i, trial] - means[j, trial]) / sure.error[trial])
            if not found[trial] and t > 1.9:
                pairs = math.comb(int(left[trial]), 2)
                found[trial] = sure.tail(t, int(trial), pairs) < SURE
    return found


def repeated(
    what: str, trials: int, at_once: int, some: Callable[[Random, int], Floats]
) -> list[float]:
    """How often in percent, of each row that `some` returns; depends on the cell's name alone."""
    random = np.random.default_rng(zlib.crc32(what.encode()))
    sizes = [at_once] * (trials // at_once)
    sizes += [trials - sum(sizes)] if trials > sum(sizes) else []
    found = np.concatenate([np.atleast_2d(some(random, size)) for size in sizes], axis=1)
    return [100 * float(row.mean()) for row in found]


# -- the parts of the table


def pairs(trials: int) -> Iterator[Cell]:
    """Two equal systems; and the interval of one of them."""
    for kind, runs, images in product(KINDS, (2, 3, 5, 10), (300, 1000, 5000)):
        truth = -LOST * FAILING if kind == "failures" else 0.0

        def some(random: Random, size: int) -> Floats:
            hard = difficulty(random, images, size, kind)  # noqa: B023
            first, second = (system(random, runs, hard, kind, i) for i in range(2))  # noqa: B023
            alone, seen = sureness(second), (second.totals < -LOST / 2).any(axis=0)
            covered = alone.p(second.mean - truth) >= SURE  # noqa: B023
            of_trained = alone.p(second.mean) >= SURE
            told = [p_of(first, second) < SURE, covered, seen, seen & covered, ~seen & of_trained]
            return np.stack(told)

        what = f"{kind}, {runs} seeds, {images:,} images"
        error, covered, seen, *parts = repeated(what, trials, 20, some)
        gaussian = kind in KINDS[:2] and runs >= 3
        yield Cell("error of a pair", what, error, trials, 2.5 if gaussian else 0, 6.5)
        ends = (93.0, 97.0) if gaussian else (93.5, 100.0)
        yield Cell("coverage", what, covered, trials, *ends)
        if kind == "failures":
            told = ("where a run failed", "of those that train, where none failed")
            for words, part, share in zip(told, parts, (seen, 100 - seen), strict=True):
                count = round(trials * share / 100)
                rate = 100 * part / share
                yield Cell("coverage with failures", f"{what}: {words}", rate, count, 93.5, 100)


def studies(trials: int) -> Iterator[Cell]:
    """Somebody is told apart from the leader of equal objectives."""
    for kind, count, runs in product(KINDS, (2, 3, 5, 13), (3, 5, 10)):

        def some(random: Random, size: int) -> Floats:
            hard = difficulty(random, 300, size, kind)  # noqa: B023
            return told_apart([system(random, runs, hard, kind, i) for i in range(count)])  # noqa: B023

        what = f"{count} objectives, {kind}, {runs} seeds, 300 images"
        number = max(20, trials // 2) if count == 13 else trials
        (error,) = repeated(what, number, 50, some)
        yield Cell("a whole study", what, error, number, 0, 6)


def replicates(trials: int) -> Iterator[Cell]:
    """Searches of three seeds each: the same images for all, or new ones for each search."""
    for by_search, draws in product((SEARCH, LARGE), (3, 5)):

        def searches(random: Random, hard: Floats) -> Floats:
            count, size = hard.shape
            found = random.normal(0, NOISE / math.sqrt(3), (draws, count, size))  # noqa: B023
            found += random.normal(0, SMALL / math.sqrt(3), (draws, 1, size))  # noqa: B023
            found += random.normal(0, by_search, (draws, 1, size))  # noqa: B023
            return np.asarray(found + hard + random.normal(0, BY_SYSTEM, hard.shape))

        def same(random: Random, size: int) -> Floats:
            hard = difficulty(random, 1000, size)
            return p_of(*(crossed(searches(random, hard)) for _ in range(2))) < SURE

        def new(random: Random, size: int) -> Floats:
            hard = random.normal(0, BY_IMAGE / math.sqrt(1000), (draws, size))  # noqa: B023
            spread = math.hypot(by_search, math.hypot(BY_SYSTEM, NOISE / math.sqrt(3)) / 1000**0.5)  # noqa: B023
            one, other = (hard + random.normal(0, spread, hard.shape) for _ in range(2))
            return paired_sureness(one, other).p((other - one).mean(axis=0)) < SURE

        def whole(random: Random, size: int) -> Floats:
            hard = difficulty(random, 300, size)
            return told_apart([crossed(searches(random, hard)) for _ in range(5)])

        told = f"{draws} replicates of three seeds, a search's effect {by_search:g}"
        for what, some in (("the same 1,000 images", same), ("1,000 new images each", new)):
            (error,) = repeated(f"{told}, {what}", trials, 50, some)
            yield Cell("error of a pair", f"{told}, {what}", error, trials, 2.5, 6.5)
        what = f"5 objectives, {told}, 300 images"
        (error,) = repeated(what, trials, 50, whole)
        yield Cell("a whole study", what, error, trials, 0, 6)


def equivalence(trials: int) -> Iterator[Cell]:
    """Two systems exactly the margin apart that are called equivalent."""
    for kind, runs in product(KINDS, (3, 5, 10)):

        def some(random: Random, size: int) -> Floats:
            hard = difficulty(random, 5000, size, kind)  # noqa: B023
            first = system(random, runs, hard, kind, 0)  # noqa: B023
            second = system(random, runs, hard + MARGIN, kind, 1)  # noqa: B023
            gap = second.mean - first.mean
            return sureness(first, second).p(gap, beyond=MARGIN) < SURE

        what = f"{kind}, {runs} seeds, 5,000 images, {MARGIN:g} apart"
        (error,) = repeated(what, trials, 20, some)
        yield Cell("equivalence at its margin", what, error, trials, 0, 6)


def themselves() -> Iterator[Cell]:
    """Seeds of the study, all splits of ten into five and five, of three and three a sample."""
    found: dict[str, list[Ranks]] = defaultdict(list)
    with open(STUDY / "runs.csv", newline="") as file:
        for line in csv.DictReader(file):
            found[line["row"]].append(Ranks.load(STUDY / "ranks" / f"{line['run']}.parquet"))
    full = {row: Crossed.of(ranks) for row, ranks in found.items() if len(ranks) == 10}
    random = np.random.default_rng(0)
    for size in (5, 3):
        rates = {}
        for row, every in full.items():
            place = every.names.index("rsum")
            values = every.values[:, :, place : place + 1]
            if size == 5:
                splits = [
                    (one, tuple(set(range(10)) - set(one)))
                    for one in combinations(range(10), 5)
                    if 0 in one
                ]
            else:
                drawn = (random.permutation(10)[:6] for _ in range(126))
                splits = [(tuple(six[:3]), tuple(six[3:])) for six in drawn]
            apart = [
                p_of(*(Crossed(("rsum",), values[list(half)], every.fold) for half in split))[0]
                < SURE
                for split in splits
            ]
            rates[row] = 100 * float(np.mean(apart))
        count = 126 * len(rates)
        ends = f"{min(rates.values()):.1f} to {max(rates.values()):.1f} % by objective"
        what = f"{size} against {size} seeds, {len(rates)} objectives, {count:,} splits"
        yield Cell("themselves", f"{what} ({ends})", mean(rates.values()), count, 2.5, 6.5)


def written(cells: list[Cell]) -> str:
    lines = ["# How often the inference errs", ""]
    lines += ["By `python results/inference/simulate.py`; what it means: [README](README.md)."]
    lines += ["±: one standard error of the simulation. *Within chance*: beyond by at most two."]
    for part in dict.fromkeys(cell.part for cell in cells):
        some = [cell for cell in cells if cell.part == part]
        met = sum(cell.met == "met" for cell in some)
        lines += ["", f"## {part[0].upper()}{part[1:]}: {met} of {len(some)} met", ""]
        lines += ["| | % | trials | goal | |", "|---|---|---|---|---|"]
        for cell in some:
            number = f"{cell.rate:.1f} ± {cell.error:.1f}"
            goal = f"{cell.low:g} to {cell.high:g}"
            lines.append(f"| {cell.what} | {number} | {cell.trials:,} | {goal} | {cell.met} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4000)
    count = parser.parse_args().trials
    cells = []
    for part in (pairs, studies, equivalence, replicates):
        cells += list(part(count))
        print(f"{part.__name__}: done", flush=True)
    cells += list(themselves())
    (HERE / "table.md").write_text(written(cells))
